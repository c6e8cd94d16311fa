"""Sparse weights whose zeros lie anywhere: some PEs have more weights than others, and all wait.

Each of a PE's weights of an output is there with the chance ``density``, so that their number is
binomial. A PE may be ahead of the next one in the ring, but sums wait for the slower: PEs are
queues in series. Of n queues in series the K-th customer leaves, beside K times the mean service,
after ``deviation sqrt(K) lambda(n)`` (Glynn and Whitt, Ann. Appl. Probab. 1, 1991), with lambda the
largest eigenvalue of a Gaussian unitary n x n matrix (Baryshnikov, Probab. Theory Relat. Fields
119, 2001), on average ``2 sqrt(n) - 1.7711 n^(-1/6)`` (Tracy and Widom, Commun. Math. Phys. 159,
1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import exp, lgamma, log, log1p, pow, sqrt

TRACY_WIDOM_MEAN = 1.7711
"""Of the distribution F2, with the sign changed."""


@dataclass(frozen=True)
class Service:
    """Cycles that a PE takes for its weights of one output, over all outputs.

    ``longest`` is the mean of the longest of all PEs of a ring.
    """

    mean: float
    deviation: float
    longest: float

    def waiting_cycles(self, pes: int, outputs: int) -> float:
        """What the last of ``outputs`` takes longer than ``outputs`` means, on a ring of ``pes``.

        No more than if all PEs of a ring waited for the longest of each output.
        """
        eigenvalue = 2 * sqrt(pes) - TRACY_WIDOM_MEAN * pow(pes, -1 / 6)
        in_series = self.deviation * sqrt(outputs) * eigenvalue
        return min(in_series, (self.longest - self.mean) * outputs)


@lru_cache(maxsize=4096)
def service(
    weights: int, density: float, weight_cycles: float, row_cycles: float, least: float, pes: int
) -> Service:
    """Of ``weights`` a share ``density`` is there, each for ``weight_cycles``.

    ``row_cycles`` come with every output, and ``least`` cycles pass in any case.
    """
    chances = _binomial(weights, density)
    cycles = [max(least, row_cycles + weight_cycles * k) for k in range(weights + 1)]
    mean = sum(chance * took for chance, took in zip(chances, cycles, strict=True))
    square = sum(chance * (took - mean) ** 2 for chance, took in zip(chances, cycles, strict=True))
    all_within = [min(1.0, within) ** pes for within in accumulate(chances)]
    steps = (later - took for took, later in pairwise(cycles))
    longer = (step * (1 - within) for step, within in zip(steps, all_within, strict=False))
    return Service(mean, sqrt(square), cycles[0] + sum(longer))


def _binomial(trials: int, chance: float) -> list[float]:
    """The chance of each number from 0 to ``trials``."""
    if chance in (0.0, 1.0):
        return [float(k == trials * chance) for k in range(trials + 1)]
    return [
        exp(
            lgamma(trials + 1)
            - lgamma(k + 1)
            - lgamma(trials - k + 1)
            + k * log(chance)
            + (trials - k) * log1p(-chance)
        )
        for k in range(trials + 1)
    ]
