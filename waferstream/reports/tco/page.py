"""A comparison as a page, with its tornado."""

from __future__ import annotations

from markupsafe import Markup

from waferstream.reports.drawing import WIDTH, Color, Drawing, ticks
from waferstream.reports.page import Block, Figures, Page, Section, Sentence, Table
from waferstream.reports.tco.sensitivity import Study
from waferstream.reports.tco.text import (
    MOST_BARS,
    assumption_rows,
    cost_rows,
    money,
    tornado_rows,
    verdict,
)

_ROW, _TOP = 18.0, 20.0
_LETTER, _MOST_LEFT = 6.0, 180.0  # width of a letter, and of the names of assumptions


def comparison_page(study: Study) -> Page:
    """Return the page of a comparison."""
    first, second = study.rivals
    sentences: list[Block] = [Sentence(line, is_note=False) for line in verdict(study)]
    costs, tornado, assumptions = cost_rows(study), tornado_rows(study), assumption_rows(study)
    code = study.comparison.currency.code
    title = f"Lead of {first} over {second} in {code}; to the left of zero {second} is cheaper"
    return Page(
        title="Total cost of ownership",
        subtitle=" beside ".join(study.costs()),
        sections=[
            Section("verdict", "Which machine wins when", sentences),
            Section("costs", "What the project costs", [Table(costs[0], costs[1:])]),
            Section(
                "tornado",
                "What decides",
                [Figures([(title, tornado_drawing(study))]), Table(tornado[0][:5], _cut(tornado))],
            ),
            Section(
                "assumptions",
                "Every assumption",
                [Table(assumptions[0], assumptions[1:], texts=("source",))],
            ),
        ],
    )


def _cut(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [row[:5] for row in rows[1:]]


def tornado_drawing(study: Study) -> Markup:
    """Draw the lead at both ends of every assumption's range, the widest on top."""
    bars = study.tornado[:MOST_BARS]
    drawing = Drawing(_TOP + _ROW * len(bars) + 24)
    left = min(_MOST_LEFT, 12 + _LETTER * max((len(bar.key) for bar in bars), default=0))
    money_of = study.comparison.currency.of_usd
    lead = money_of(study.lead_usd())
    spans = [sorted(map(money_of, (bar.at_low_usd, bar.at_high_usd))) for bar in bars]
    ends = [0.0, lead, *(end for span in spans for end in span)]
    low, high = min(ends), max(ends)
    scale = (WIDTH - left - 12) / ((high - low) or 1.0)
    bottom = _TOP + _ROW * len(bars)

    def x(sum_of_money: float) -> float:
        return left + (sum_of_money - low) * scale

    for value in ticks(low, high, 4):
        drawing.line((x(value), _TOP - 4), (x(value), bottom), "line")
        drawing.text((x(value), bottom + 16), money(value), anchor="middle")
    for index, (bar, span) in enumerate(zip(bars, spans, strict=True)):
        y = _TOP + _ROW * index
        start, end = map(x, span)
        color: Color = "blue" if bar.break_even is None else "vermilion"
        drawing.rect(start, y, end - start, _ROW - 5, color, 0.8)
        drawing.text((left - 6, y + _ROW - 8), bar.key, "ink", "end")
    drawing.line((x(0.0), _TOP - 4), (x(0.0), bottom), "ink", 1.5)
    drawing.line((x(lead), _TOP - 4), (x(lead), bottom), "orange", 1.5)
    return drawing.svg("Lead of the cheapest machine at both ends of each assumption's range")
