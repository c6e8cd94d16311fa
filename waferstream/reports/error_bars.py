"""How far the clock has been from published measurements, by the kind of machine.

Only runs count that no constant was fitted to. The numbers are those of docs/fidelity.md; a test
computes them anew from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorBar:
    """Absolute errors of predicted training throughput, relative to what was measured.

    0.1 is 10 %; ``nine_of_ten`` is the least error that at most every tenth run exceeds.
    """

    system: str
    runs: int
    mean: float
    nine_of_ten: float
    worst: float

    def around(self, rate: float) -> tuple[float, float]:
        """Where the measured rate would lie, nine times out of ten, if this one were predicted."""
        return rate / (1 + self.nine_of_ten), rate / (1 - self.nine_of_ten)


ERROR_BARS: Mapping[str, ErrorBar] = {
    "CS-2": ErrorBar("CS-2", 22, 0.0453, 0.096, 0.183),
}
"""By the name of the system; one that is missing has no run left to check against."""
