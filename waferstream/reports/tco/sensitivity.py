"""Which machine is the cheapest, by how much, and which assumptions decide it.

A tornado has a bar for each assumption: the lead of the cheapest machine over the next one at both
ends of its range, all others as they are. Where the lead changes its sign inside of the range, the
value at which it does is the break-even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from scipy.optimize import brentq

from waferstream.reports.tco.comparison import Comparison
from waferstream.reports.tco.costs import Cost, Values, cost_of
from waferstream.reports.tco.estimates import Estimate
from waferstream.reports.tco.resolution import assumptions_of

UNCHANGED: Values = MappingProxyType({})
"""No assumption at another value than its own."""
RUN_COUNTS = (1, 3, 10, 30, 100, 300, 1000)
"""Numbers of runs for which the cheapest machine is named."""
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
class Study:
    """A comparison with all its assumptions."""

    comparison: Comparison
    assumptions: Mapping[str, Estimate]

    @classmethod
    def of(cls, comparison: Comparison) -> Study:
        """Return the study of a file's comparison."""
        return cls(comparison, assumptions_of(comparison))

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

    def _bar(self, key: str, estimate: Estimate) -> Bar:
        low, high = (self.lead_usd({key: end}) for end in (estimate.least, estimate.most))
        even = None
        if low * high < 0:
            even = brentq(lambda v: self.lead_usd({key: v}), estimate.least, estimate.most)
        return Bar(key, estimate, low, high, even)
