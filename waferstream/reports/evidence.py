"""How far predictions of training throughput are from published runs, and how reports say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waferstream.core.units import format_count
from waferstream.reports.page import Section, Sentence


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


def error_bar_text(system: str, bar: ErrorBar | None, as_published: bool) -> str:
    """Return how far predictions for a system are from published runs.

    Args:
        system: The name of the system.
        bar: Its errors; None where no published run is known.
        as_published: Whether the machine is the published one.
    """
    changed = "" if as_published else " cluster.yaml changes numbers of the published machine."
    if bar is None:
        return f"Error bar: unknown, no published run on a {system} is left to compare.{changed}"
    return (
        f"Error bar: nine of ten published runs on one {bar.system} are within "
        f"{bar.nine_of_ten:.0%} of their prediction ({bar.runs} runs, none of them fitted; mean "
        f"{bar.mean:.1%}, worst {bar.worst:.0%}).{changed}"
    )


def error_section(system: str, as_published: bool, extrapolated: Sequence[str]) -> Section:
    """Return how far the emulated times of a system are to be trusted.

    Args:
        system: The name of the system.
        as_published: Whether the machine is the published one.
        extrapolated: Sentences on what no published run covers.
    """
    text = error_bar_text(system, ERROR_BARS.get(system), as_published)
    sentences = [Sentence(one, False) for one in (text, *extrapolated)]
    return Section("error", "How far to trust the emulated times", sentences)
