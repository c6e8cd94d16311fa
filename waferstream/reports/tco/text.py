"""A comparison as text: sums, tornado, verdict, assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from waferstream.core.units import aligned, format_rate, format_short
from waferstream.reports.amounts import format_duration, format_energy, format_mass
from waferstream.reports.tco.costs import Cost
from waferstream.reports.tco.sensitivity import Bar, Study

_BAR_LETTERS = 30
MOST_BARS = 12
"""Assumptions of a tornado that are shown: the others move little."""

Row = tuple[str, ...]


def cost_rows(study: Study) -> list[Row]:
    """Return a header, a row for each item of the cost, and rows of what it takes."""
    costs = study.costs()
    header = ("", *costs)
    items = [
        (item, *(money(cost.items[item]) for cost in costs.values()))
        for item in next(iter(costs.values())).items
    ]
    total = ("sum in USD", *(money(cost.usd) for cost in costs.values()))
    return [header, *items, total, *_physical_rows(list(costs.values()))]


def _physical_rows(costs: Sequence[Cost]) -> Iterator[Row]:
    yield "all trainings", *(format_duration(3600 * cost.training_h) for cost in costs)
    yield "energy", *(format_energy(cost.kwh) for cost in costs)
    yield "CO2e", *(format_mass(cost.kg_co2e) for cost in costs)


def money(usd: float) -> str:
    """Return a sum of dollars, which may be negative."""
    sign, size = ("-" if usd < 0 else ""), abs(usd)
    return sign + (format_short(size) if size >= 1e4 else format_rate(size, 3))


def verdict(study: Study) -> list[str]:
    """Return in sentences which machine is the cheapest, and when another is."""
    _, second = study.rivals
    costs = study.costs()
    lines = [_winner(study)]
    turning = [bar for bar in study.tornado if bar.break_even is not None]
    if not turning:
        lines.append("No single assumption changes that within its range.")
    lines += [_break_even(bar, second) for bar in turning]
    by_time = min(costs, key=lambda name: costs[name].training_h)
    by_energy = min(costs, key=lambda name: costs[name].kwh)
    lines.append(f"The soonest is {by_time}; the least energy takes {by_energy}.")
    runs = ", ".join(f"{count:,}: {name}" for count, name in study.winners.items())
    return [*lines, f"The cheapest by the number of runs: {runs}."]


def _winner(study: Study) -> str:
    first, second = study.rivals
    costs, lead = study.costs(), study.lead_usd()
    if not lead:
        return f"{first} and {second} cost the same: {money(costs[first].usd)} USD."
    less = lead / costs[second].usd
    return f"{first} is the cheapest: {money(costs[first].usd)} USD, {less:.0%} less than {second}."


def _break_even(bar: Bar, second: str) -> str:
    assert bar.break_even is not None
    side = "below" if bar.at_low_usd < 0 else "above"
    even, now = format_short(bar.break_even), format_short(bar.estimate.value)
    return f"{second} is cheaper where {bar.key} is {side} {even} (here {now})."


def tornado_rows(study: Study) -> list[Row]:
    """Return a header and a row for each assumption: its range, and the lead at both ends."""
    bars = study.tornado[:MOST_BARS]
    widest = max((bar.swing_usd for bar in bars), default=1.0)
    header = ("assumption", "low", "high", f"lead of {study.rivals[0]} at low", "at high", "swing")
    return [
        header,
        *(
            (
                bar.key,
                format_short(bar.estimate.least),
                format_short(bar.estimate.most),
                money(bar.at_low_usd),
                money(bar.at_high_usd),
                "#" * max(1, round(_BAR_LETTERS * bar.swing_usd / widest)),
            )
            for bar in bars
        ),
    ]


def assumption_rows(study: Study) -> list[Row]:
    """Return a header and a row for each assumption with its source."""
    return [
        ("assumption", "value", "low", "high", "source"),
        *(
            (key, *map(format_short, (one.value, one.least, one.most)), one.source)
            for key, one in study.assumptions.items()
        ),
    ]


def comparison_text(study: Study) -> str:
    """Return the whole comparison."""
    first, second = study.rivals
    return "\n".join(
        [
            *verdict(study),
            "",
            *aligned(cost_rows(study)),
            "",
            f"What decides between {first} and {second}, in USD",
            *aligned(tornado_rows(study), left=(0, 5)),
            "",
            *aligned(assumption_rows(study), left=(0, 4)),
        ]
    )


def as_json(study: Study) -> dict[str, Any]:
    """Return the comparison as plain data."""
    return {
        "verdict": verdict(study),
        "costs": {name: {**vars(cost), "usd": cost.usd} for name, cost in study.costs().items()},
        "tornado": [
            {
                "key": bar.key,
                "low": bar.estimate.least,
                "high": bar.estimate.most,
                "lead_at_low_usd": bar.at_low_usd,
                "lead_at_high_usd": bar.at_high_usd,
                "break_even": bar.break_even,
            }
            for bar in study.tornado
        ],
        "winners": {f"{count}": name for count, name in study.winners.items()},
        "assumptions": {key: one.model_dump() for key, one in study.assumptions.items()},
    }
