"""Closed form of the gradient of a weight of which a part is masked.

Only the gradients of non-zeros are computed. dY rests; parts of X are broadcast along a row of PEs,
one PE's part per step; the weights of the part's inputs arrive down the columns, as they do for the
gradient of inputs. Each weight triggers a dot product over the local tokens, its own gradient
(``csnode.fabric.kernels.masked``), at the rate of multiply-adds. The gradients of non-zeros are
summed in fp32 down the columns and over the replicas of a row.

Zeros lie at random places, so the PEs of a row take different times for a step. A PE has two
buffers for parts of X: part s + 2 follows the end of step s on all PEs, and takes ``later`` cycles
to arrive. The longest path through these conditions is the duration. With K steps in all, a path
that changes from PE to PE j times contains K - j steps and j arrivals::

    PE q    | step 0 | step 1 |                      | step 4 | step 5 |     K = 6, j = 1:
    PE p    | step 0 | step 1 | step 2 |- part 4 -->                         steps 0 1 2 4 5

On the slowest PE for them, n steps take ``sqrt(n) ahead`` cycles more than their mean, where
``ahead`` is what the slowest PE of a row takes more in one step. A path may also begin with
arrivals alone, where these take longer than steps.

Weights and parts of X enter a PE through one ramp, one wavelet per cycle, so weights delay parts.
"""

from __future__ import annotations

from math import ceil, hypot, sqrt
from statistics import NormalDist

from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.collectives import reduce
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.resident import (
    SIGNAL_CYCLES,
    MovingOperand,
    between_arrivals,
    first_arrival,
    weight_gradient,
)
from waferstream.machine.kernels.single_pe import HALF_BYTES, axpy_cycles, wavelets

CONTROL_CYCLES = 2
"""Cycles for each input of X: to take the control wavelet, and to issue the next task."""


def sparse_weight_gradient(
    grid: Grid, tokens: int, outputs: int, inputs: int, dtype: str, density: float
) -> Cycles:
    """Return the cost of the gradient of a sparse weight by the faster of two kernels.

    The dense kernel also computes the gradients of masked weights, in longer vectors. Only it is
    left for weights of 32 bits, which travel without an index.
    """
    dense = weight_gradient(grid, tokens, outputs, inputs, dtype)
    if BYTES_PER_ELEMENT[dtype] > HALF_BYTES:
        return dense
    masked = masked_weight_gradient(grid, tokens, outputs, inputs, dtype, density)
    return min(dense, masked, key=lambda cycles: cycles.total_cycles)


def masked_weight_gradient(
    grid: Grid, tokens: int, outputs: int, inputs: int, dtype: str, density: float
) -> Cycles:
    """Return the cost of the kept ``dW[outputs, inputs] = dY^T X`` of resident dY and moving X.

    Args:
        grid: PEs that hold dY and X.
        tokens: Rows of dY and X.
        outputs: Columns of dY.
        inputs: Columns of X.
        dtype: Type of dY and X, of 16 bits; sums are fp32.
        density: Share of the weights that are not zero, at random places.
    """
    fabric, width, local_tokens = grid.fabric, grid.features(inputs), grid.tokens(tokens)
    steps, places = ceil(inputs / width), grid.features(outputs) * width
    weight = axpy_cycles(fabric, local_tokens, dtype).at_least(fabric.cycles_per_wavelet)
    each = weight * (places * density) + Cycles(setup=width * CONTROL_CYCLES + SIGNAL_CYCLES)
    ahead = _most_beyond_mean(places, density, grid.hidden_pes)
    moving = MovingOperand(steps, wavelets(fabric, local_tokens * width, dtype))
    slowest = ahead * weight.total_cycles
    waits = _waits(fabric, moving, each.total_cycles, slowest, places * density + width)
    fullest = places * density * steps + ahead * sqrt(steps)
    sums = [reduce(fabric, line, fullest) for line in (fabric.rows, grid.replicas_per_row)]
    starts = fabric.vector_setup_cycles * sum(cycles > 0 for cycles in sums)
    return each * steps + Cycles(fabric=waits + sum(sums), setup=starts)


def _most_beyond_mean(places: int, density: float, pes: int) -> float:
    """Return how many weights the fullest of ``pes`` PEs has beyond the mean.

    The mean of the largest of n normal variables is near the quantile (n - 3/8) / (n + 1/4) (Blom,
    Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    deviation = sqrt(places * density * (1 - density))
    return deviation * NormalDist().inv_cdf((pes - 0.375) / (pes + 0.25))


def _waits(
    fabric: FabricSpec, moving: MovingOperand, mean: float, ahead: float, weights: float
) -> float:
    """Return the cycles of all steps beyond their mean, with the way of the first part.

    Args:
        fabric: The wafer.
        moving: Parts of X, one per step.
        mean: Mean cycles of a PE for a step.
        ahead: What the slowest PE of a row takes more.
        weights: Wavelets that share the ramp with a part.
    """
    if moving.pes == 1:
        return 0.0
    first = first_arrival(fabric, moving, ceil(moving.wavelets))
    later = between_arrivals(fabric, moving, moving.pes) + weights
    return first + _longest_path(moving.pes, mean, ahead, later) - mean * moving.pes


def _longest_path(steps: int, mean: float, ahead: float, later: float) -> float:
    """Return the cycles from the arrival of the first part to the end of the last step.

    With j changes there are j + 1 runs of (K - j) / (j + 1) steps, which together take ``ahead
    sqrt((K - j)(j + 1))`` beyond their mean: half a circle over j, around (K - 1) / 2 with the
    radius (K + 1) / 2. Its sum with a line is largest where their slopes cancel.
    """
    saved = mean - later  # by a change
    slope = hypot(saved, ahead)
    top = (steps - 1 - (steps + 1) * saved / slope) / 2 if slope else 0.0
    changes = min(max(top, 0.0), steps / 2)
    spread = ahead * sqrt((steps - changes) * (changes + 1))
    with_changes = steps * mean - changes * saved + spread
    last = min(max((ahead / (2 * saved)) ** 2, 1.0), steps) if saved < 0 else float(steps)
    after_arrivals = (steps - last) * later + last * mean + ahead * sqrt(last)
    return max(with_changes, after_arrivals)
