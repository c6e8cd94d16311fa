"""How far predictions of training throughput are from published runs, and which runs those are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsc.core.units import format_count


@dataclass(frozen=True)
class ErrorBar:
    """Absolute errors of predicted training throughput, relative to the measured throughput.

    Fractions: 0.1 is 10 %. ``nine_of_ten`` is the smallest error that at most one run in ten
    exceeds. Only runs count to which no constant was fitted.
    """

    system: str
    runs: int
    mean: float
    nine_of_ten: float
    worst: float
    parameters: tuple[float, float]
    """Parameters of the smallest and of the largest model of the runs."""
    most_systems: int
    """Systems of the largest run."""

    def around(self, rate: float) -> tuple[float, float]:
        """Return the range that holds nine of ten measured rates when ``rate`` is predicted."""
        return rate / (1 + self.nine_of_ten), rate / (1 - self.nine_of_ten)

    def extrapolations(self, parameters: float, num_csx: int) -> tuple[str, ...]:
        """Return why no run covers a model on some systems; empty where one does."""
        smallest, largest = self.parameters
        reasons = []
        if not smallest <= parameters <= largest:
            sizes = f"{format_count(smallest)} to {format_count(largest)}"
            reasons.append(f"models of published runs have {sizes} parameters")
        if num_csx > self.most_systems:
            reasons.append(f"published runs have {self.most_systems} {self.system}")
        return tuple(reasons)


ERROR_BARS: Mapping[str, ErrorBar] = {
    "CS-2": ErrorBar("CS-2", 22, 0.0453, 0.096, 0.183, (35e6, 20e9), 1),
}
"""Error bars of docs/fidelity.md by system; a system without validation rows has none."""


def extrapolations(system: str, parameters: float, num_csx: int) -> tuple[str, ...]:
    """Return why no published run covers a model on ``num_csx`` systems; empty where one does."""
    bar = ERROR_BARS.get(system)
    if bar is None:
        return (f"no published run on a {system} is left to compare",)
    return bar.extrapolations(parameters, num_csx)
