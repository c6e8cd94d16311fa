"""A comparison as text: sums, tornado, verdict, assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from waferstream.core.units import aligned, format_rate, format_short
from waferstream.reports.amounts import format_duration, format_energy, format_mass
from waferstream.reports.tco.costs import Cost
from waferstream.reports.tco.estimates import Estimate
from waferstream.reports.tco.sensitivity import Bar, BreakEven, Study

_BAR_LETTERS = 30
MOST_BARS = 12
"""Assumptions of a tornado that are shown: the others move little."""

Row = tuple[str, ...]


def cost_rows(study: Study) -> list[Row]:
    """Return a header, a row for each item of the cost, and rows of what it takes."""
    costs = study.costs()
    header = ("", *costs)
    currency = study.comparison.currency
    items = [
        (item, *(money(currency.of_usd(cost.items[item])) for cost in costs.values()))
        for item in next(iter(costs.values())).items
    ]
    sums = (money(currency.of_usd(cost.usd)) for cost in costs.values())
    total = (f"sum in {currency.code}", *sums)
    return [header, *items, total, _rates(study), *_physical_rows(list(costs.values()))]


def _rates(study: Study) -> Row:
    rates = (study.assumptions[f"{name}.tokens_per_s"] for name in study.costs())
    marks = (f"{format_short(one.value)}{'*' * is_extrapolated(one)}" for one in rates)
    return "tokens/s", *marks


def is_extrapolated(rate: Estimate) -> bool:
    """Tell whether a rate lies beyond the published runs that check its model."""
    return "extrapolated" in rate.source


def _physical_rows(costs: Sequence[Cost]) -> Iterator[Row]:
    yield "all trainings", *(format_duration(3600 * cost.training_h) for cost in costs)
    yield "energy", *(format_energy(cost.kwh) for cost in costs)
    yield "CO2e", *(format_mass(cost.kg_co2e) for cost in costs)


def money(amount: float) -> str:
    """Return a sum of money, which may be negative, without its currency."""
    sign, size = ("-" if amount < 0 else ""), abs(amount)
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
    lines.append(f"The cheapest by the number of runs: {runs}.")
    return lines + [_even_sentence(study, even) for even in study.break_evens]


def _even_sentence(study: Study, even: BreakEven) -> str:
    """Return how many tokens and which price make a system and GPUs cost the same."""
    system, gpus, currency = even.system, even.gpus, study.comparison.currency
    cheaper, dearer = (system, gpus) if even.lead_usd > 0 else (gpus, system)
    now, at = study.values["project.tokens_per_run"], even.tokens_per_run
    if at is None:
        tokens = f"{cheaper} is cheaper than {dearer} for any number of tokens"
    else:
        few, many = (cheaper, dearer) if now < at else (dearer, cheaper)
        tokens = f"at {format_short(at)} tokens; {few} is cheaper for less, {many} for more"
    hour = f"{money(currency.of_usd(study.values[f'{system}.hour_usd']))} {currency.code}"
    if even.system_hour_usd is None:
        price = f"{system} would cost more even if it were free"
    else:
        price = (
            f"an hour of one system may cost {money(currency.of_usd(even.system_hour_usd))} "
            f"{currency.code} (here {hour})"
        )
    return f"Break-even of {system} and {gpus}: {tokens}. At {format_short(now)} tokens, {price}."


def _winner(study: Study) -> str:
    first, second = study.rivals
    costs, lead, currency = study.costs(), study.lead_usd(), study.comparison.currency
    total = f"{money(currency.of_usd(costs[first].usd))} {currency.code}"
    if not lead:
        return f"{first} and {second} cost the same: {total}."
    less = lead / costs[second].usd
    return f"{first} is the cheapest: {total}, {less:.0%} less than {second}."


def _break_even(bar: Bar, second: str) -> str:
    assert bar.break_even is not None
    side = "below" if bar.at_low_usd < 0 else "above"
    even, now = format_short(bar.break_even), format_short(bar.estimate.value)
    return f"{second} is cheaper where {bar.key} is {side} {even} (here {now})."


def tornado_rows(study: Study) -> list[Row]:
    """Return a header and a row for each assumption: its range, and the lead at both ends."""
    bars, currency = study.tornado[:MOST_BARS], study.comparison.currency
    widest = max((bar.swing_usd for bar in bars), default=1.0)
    header = ("assumption", "low", "high", f"lead of {study.rivals[0]} at low", "at high", "swing")
    return [
        header,
        *(
            (
                bar.key,
                format_short(bar.estimate.least),
                format_short(bar.estimate.most),
                money(currency.of_usd(bar.at_low_usd)),
                money(currency.of_usd(bar.at_high_usd)),
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
            f"What decides between {first} and {second}, in {study.comparison.currency.code}",
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
        "break_evens": [vars(even) for even in study.break_evens],
        "currency": study.comparison.currency.code,
        "assumptions": {key: one.model_dump() for key, one in study.assumptions.items()},
    }
