"""Which machine is the cheapest, by how much, and which assumptions decide it.

A tornado has a bar for each assumption: the lead of the cheapest machine over the next one at both
ends of its range, all others as they are. Where the lead changes its sign inside of the range, the
value at which it does is the break-even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from waferstream.reports.tco.comparison import Comparison
from waferstream.reports.tco.costs import Cost, Values, cost_of
from waferstream.reports.tco.estimates import Estimate
from waferstream.reports.tco.resolution import assumptions_of

UNCHANGED: Values = MappingProxyType({})
"""No assumption at another value than its own."""
RUN_COUNTS = (1, 3, 10, 30, 100, 300, 1000)
"""Numbers of runs for which the cheapest machine is named."""
_HALVINGS = 40  # of the range of an assumption: 12 digits
_LEAST_SWING = 1e-9  # of the larger sum; a smaller one is rounding


@dataclass(frozen=True)
class Bar:
    """An assumption, and the lead at both ends of its range."""

    key: str
    estimate: Estimate
    at_low_usd: float
    at_high_usd: float
    break_even: float | None
    """Where the two machines cost the same; None where one is cheaper in the whole range."""

    @property
    def swing_usd(self) -> float:
        """How much the assumption moves the lead."""
        return abs(self.at_high_usd - self.at_low_usd)


@dataclass(frozen=True)
class BreakEven:
    """Where a system and GPUs cost the same, whatever the ranges of assumptions are."""

    system: str
    gpus: str
    lead_usd: float
    """By how much the system is cheaper as things are; negative where it is not."""
    tokens_per_run: float | None
    """None where one of them is cheaper for every number of tokens."""
    system_hour_usd: float | None
    """The price of an hour of one system; None where even a free one is dearer."""


@dataclass(frozen=True)
class Study:
    """A comparison with all its assumptions."""

    comparison: Comparison
    assumptions: Mapping[str, Estimate]

    @classmethod
    def of(cls, comparison: Comparison, simulated: Mapping[str, Any] | None = None) -> Study:
        """Return the study of a comparison, on a simulation that is at hand or in its file."""
        return cls(comparison, assumptions_of(comparison, simulated))

    @cached_property
    def values(self) -> Values:
        """The value of every assumption."""
        return {key: estimate.value for key, estimate in self.assumptions.items()}

    def costs(self, changes: Values = UNCHANGED) -> Mapping[str, Cost]:
        """Return the cost on each machine, from the cheapest on, with some values changed."""
        values = {**self.values, **changes}
        costs = {one.name: cost_of(one.name, one.count, values) for one in self.comparison.machines}
        return dict(sorted(costs.items(), key=lambda named: named[1].usd))

    @cached_property
    def rivals(self) -> tuple[str, str]:
        """The cheapest machine, and the next one."""
        first, second, *_ = self.costs()
        return first, second

    def lead_usd(self, changes: Values = UNCHANGED) -> float:
        """Return by how much the first rival is cheaper than the second."""
        costs = self.costs(changes)
        first, second = self.rivals
        return costs[second].usd - costs[first].usd

    @cached_property
    def tornado(self) -> Sequence[Bar]:
        """A bar for each assumption that moves the lead, the widest first."""
        bars = [self._bar(key, estimate) for key, estimate in self.assumptions.items()]
        least = _LEAST_SWING * max(cost.usd for cost in self.costs().values())
        return sorted(
            (bar for bar in bars if bar.swing_usd > least), key=lambda bar: -bar.swing_usd
        )

    @property
    def winners(self) -> Mapping[int, str]:
        """The cheapest machine by the number of runs, from few to many."""
        return {count: next(iter(self.costs({"project.runs": count}))) for count in RUN_COUNTS}

    @property
    def break_evens(self) -> Iterator[BreakEven]:
        """Every system beside all GPUs."""
        machines = self.comparison.machines
        for system in (one.name for one in machines if one.system is not None):
            for gpus in (one.name for one in machines if one.gpu is not None):
                yield BreakEven(
                    system,
                    gpus,
                    self._difference_usd(system, gpus, UNCHANGED),
                    self._even(system, gpus, "project.tokens_per_run"),
                    self._even(system, gpus, f"{system}.hour_usd"),
                )

    def _difference_usd(self, one: str, other: str, changes: Values) -> float:
        costs = self.costs(changes)
        return costs[other].usd - costs[one].usd

    def _even(self, one: str, other: str, key: str) -> float | None:
        """Return the positive value of an assumption at which two machines cost the same.

        Sums are linear in tokens and prices, so two values of them are enough.
        """
        low, high = 1.0, max(2.0, self.values[key])
        at_low, at_high = (self._difference_usd(one, other, {key: at}) for at in (low, high))
        if at_low == at_high:
            return None
        even = low - at_low * (high - low) / (at_high - at_low)
        return even if even > 0 else None

    def _bar(self, key: str, estimate: Estimate) -> Bar:
        low, high = (self.lead_usd({key: end}) for end in (estimate.least, estimate.most))
        even = None
        if low * high < 0:
            even = _zero(lambda at: self.lead_usd({key: at}), estimate.least, estimate.most)
        return Bar(key, estimate, low, high, even)


def _zero(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is zero, by bisection: its signs at both ends differ."""
    rises = of(low) < 0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (of(middle) < 0) == rises:
            low = middle
        else:
            high = middle
    return (low + high) / 2
