"""Zeros anywhere: what PEs take on average, what the longest takes, and how long others wait."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric import Dtype, Fabric
from csnode.fabric.kernels import weight_streaming
from timing.hardware.fabric import WSE2, WSE3, FabricSpec
from timing.kernels import Grid, streaming
from timing.kernels.streaming import service


def test_a_row_of_weights_takes_what_draws_of_it_take() -> None:
    """Mean, deviation and mean of the longest of 20,000 draws of 16 PEs, within 2 %."""
    drawn = np.random.default_rng(3).binomial(24, 0.3, size=(20_000, 16))
    cycles = np.maximum(16, 1.125 + 3 * drawn)
    found = service(24, 0.3, 3, 1.125, 16, 16)
    assert found.mean == pytest.approx(cycles.mean(), rel=0.02)
    assert found.deviation == pytest.approx(cycles.std(), rel=0.02)
    assert found.longest == pytest.approx(cycles.max(axis=1).mean(), rel=0.02)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_all_or_no_weights_keep_nobody_waiting(density: float) -> None:
    """Every PE takes as long as every other."""
    found = service(100, density, 3, 1, 16, 750)
    assert found.mean == found.longest == max(16, 1 + 300 * density)
    assert found.waiting_cycles(750, 5000) == 0


@given(
    weights=st.integers(1, 3000),
    density=st.floats(0, 1),
    pes=st.integers(1, 800),
    outputs=st.integers(1, 10_000),
)
def test_others_wait_no_longer_than_for_the_longest(
    weights: int, density: float, pes: int, outputs: int
) -> None:
    """And never a negative time, however many weights a PE has."""
    found = service(weights, density, 2.0, 1.0, 16.0, pes)
    longest = max(0.0, found.longest - found.mean) * outputs
    assert -1e-3 <= found.waiting_cycles(pes, outputs) <= longest * (1 + 1e-6) + 1e-3


@pytest.mark.parametrize(("machine", "density"), [(WSE2, 0.1), (WSE2, 0.5), (WSE3, 0.25)])
def test_random_zeros_cost_what_the_fabric_takes(machine: FabricSpec, density: float) -> None:
    """Within 5 % for one draw; even weights or the longest PE alone would be 10 to 20 % off."""
    rows, columns = 1, 8
    x = np.ones((rows * 8, columns * 16))
    weights = np.random.default_rng(1).random((x.shape[1], 48)) < density
    edge = Fabric(rows + 1, columns, machine)
    taken = weight_streaming(edge, x, weights.astype(float), Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": rows, "columns": columns}))
    form = streaming.weight_streaming(grid, *x.shape, 48, "float16", float(weights.mean()))
    assert form.total_cycles == pytest.approx(taken, rel=0.05)
