"""Closed form of a product with streamed weights: activations stay, weights pass by.

``Y[tokens, outputs] += X W`` with the features of X along a row of PEs and its tokens down the
columns. The weights of one output arrive in every column, at the PEs that hold their input
features. Each arriving weight multiplies its feature of all local tokens and adds the result to the
output's partial sums (an AXPY). A control wavelet then starts the ring that adds the partial sums
of a row of PEs: from the PE after the one that keeps the output, once round to that keeper, on a
micro-thread beside the AXPYs of the next output (Lie, Hot Chips 34; IEEE Micro 2023). So Y lies
exactly as X::

    AXPYs      | output 0 | output 1 | output 2 |
    ring                  |+ output 0|+ output 1|+ output 2| last trip |

The backward pass for activations is the same product with inputs and outputs exchanged.

Sparse weights have their zeros at random places, so some PEs have more weights of an output than
others, and the others wait. With each weight present with probability ``density``, the number on a
PE is binomial. A PE may be ahead of the next one in the ring, but sums wait for the slower one: PEs
are queues in series. In n queues in series, the K-th customer leaves, beyond K times the mean
service, after ``deviation sqrt(K) lambda(n)`` (Glynn and Whitt, Ann. Appl. Probab. 1, 1991), where
lambda is the largest eigenvalue of a Gaussian unitary n x n matrix (Baryshnikov, Probab. Theory
Relat. Fields 119, 2001), on average ``2 sqrt(n) - 1.7711 n^(-1/6)`` (Tracy and Widom, Commun. Math.
Phys. 159, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, exp, lgamma, log, log1p, pow, sqrt

from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.collectives import depth_cycles
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.single_pe import axpy_cycles, elements_per_cycle, wavelets

TRACY_WIDOM_MEAN = 1.7711
"""Mean of the Tracy-Widom distribution F2, with the sign changed."""


@dataclass(frozen=True)
class Service:
    """Cycles that a PE takes for its weights of one output, as a distribution over outputs.

    ``longest`` is the mean over outputs of the longest of all PEs of a ring.
    """

    mean: float
    deviation: float
    longest: float

    def waiting_cycles(self, pes: int, outputs: int) -> float:
        """Return the cycles of ``outputs`` beyond ``outputs`` times the mean, on a ring of ``pes``.

        At most what it would be if all PEs waited for the slowest one at each output.
        """
        eigenvalue = 2 * sqrt(pes) - TRACY_WIDOM_MEAN * pow(pes, -1 / 6)
        in_series = self.deviation * sqrt(outputs) * eigenvalue
        return min(in_series, (self.longest - self.mean) * outputs)


@lru_cache(maxsize=4096)
def service(
    weights: int, density: float, weight_cycles: float, row_cycles: float, least: float, pes: int
) -> Service:
    """Return the service of a PE whose ``weights`` per output are present at random.

    Args:
        weights: Weights of one output on a PE, zeros included.
        density: Probability of a weight to be present, not zero.
        weight_cycles: Cycles of one present weight.
        row_cycles: Cycles of each output besides its weights.
        least: Fewest cycles of an output.
        pes: PEs of the ring.
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
    """Return the probability of each number of successes from 0 to ``trials``."""
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


def weight_streaming(
    grid: Grid,
    tokens: int,
    inputs: int,
    outputs: int,
    dtype: str,
    density: float = 1.0,
    sum_dtype: str | None = None,
) -> Cycles:
    """Return the cost of ``Y[tokens, outputs] += X[tokens, inputs] W[inputs, outputs]``.

    A weight takes one wavelet with value and index (Hot Chips 34), and the longer of the link's
    time for a wavelet and an AXPY. The set-up of an output's ring is hidden behind the AXPYs of the
    next output; its additions are not, since one datapath does both. A ring of one PE never waits:
    its sums are complete and only copied to their place.

    Args:
        grid: PEs that hold X.
        tokens: Rows of X and Y.
        inputs: Features of X.
        outputs: Features of Y.
        dtype: Type of X and of the weights.
        density: Share of the weights that are not zero and arrive, at random places.
        sum_dtype: Type of the sums that go round the ring; ``dtype`` by default.
    """
    fabric, summed = grid.fabric, sum_dtype or dtype
    local_tokens, features = grid.tokens(tokens), grid.features(inputs)
    weight = axpy_cycles(fabric, local_tokens, dtype).at_least(fabric.cycles_per_wavelet)
    row = weight * (features * density) + Cycles(fabric=fabric.cycles_per_wavelet)
    if grid.hidden_pes == 1:
        return (row + _put_in_place(fabric, local_tokens, summed)) * outputs + _first_weight(fabric)
    rows = service(
        features,
        density,
        weight.total_cycles,
        fabric.cycles_per_wavelet,
        fabric.vector_setup_cycles,
        grid.hidden_pes,
    )
    exposed = Cycles(setup=max(0.0, rows.mean - row.total_cycles))
    waits = Cycles(fabric=rows.waiting_cycles(grid.hidden_pes, outputs))
    per_output = row + exposed + _ring_step(fabric, local_tokens, summed)
    once = _first_weight(fabric) + _trips(grid, outputs)
    return per_output * outputs + waits + once


def _put_in_place(fabric: FabricSpec, local_tokens: int, dtype: str) -> Cycles:
    """Return the cost of copying the sums of one output to their place, in whole cycles.

    A vector op in memory holds the datapath through its set-up, unlike a stream, so no AXPY hides
    it.
    """
    moved = ceil(local_tokens / elements_per_cycle(fabric, "copy", dtype))
    return Cycles(memory=moved, setup=fabric.vector_setup_cycles + fabric.triggered_cycles)


def _ring_step(fabric: FabricSpec, local_tokens: int, dtype: str) -> Cycles:
    """Return the cost of adding an output's partial sums to the neighbour's and passing them on.

    The neighbour's first sums wait in the router's queue until the AXPYs leave the datapath; they
    are added in a cycle each, later ones as the link brings them.
    """
    words = wavelets(fabric, local_tokens, dtype)
    link = fabric.cycles_per_wavelet * (words - fabric.queue_wavelets)
    return Cycles(fabric=max(words, link), setup=fabric.triggered_cycles)


def _first_weight(fabric: FabricSpec) -> Cycles:
    """Return the cost before all outputs: the first weight is set up and sent down its column."""
    down = fabric.hop_cycles * (fabric.rows - 1) + depth_cycles(fabric)
    return Cycles(fabric=down, setup=fabric.vector_setup_cycles)


def _trips(grid: Grid, outputs: int) -> Cycles:
    """Return the part of the sums' trips round the ring that no output hides.

    The ring is folded into the row, so neighbours are two hops apart. Outputs come in the order of
    their keepers: the sums of a keeper start one link further than those of the keeper before, and
    the last sum makes a whole trip. The first ring also pays its set-up.
    """
    fabric = grid.fabric
    keepers = -(-outputs // grid.features(outputs))
    links = (keepers - 1) + (grid.hidden_pes - 1)
    around = (2 * fabric.hop_cycles + depth_cycles(fabric)) * links
    return Cycles(fabric=around, setup=fabric.vector_setup_cycles)
