"""The closed form of a product with streamed weights against the simulated fabric."""

import numpy as np
import pytest

from csnode.fabric import Dtype, Fabric
from csnode.fabric.kernels import weight_streaming
from timing.hardware.fabric import WSE2, WSE3, FabricSpec
from timing.kernels import Grid, streaming


def _both(
    spec: FabricSpec,
    grid: tuple[int, int],
    shape: tuple[int, int, int],
    dtype: Dtype,
    density: float = 1.0,
) -> tuple[float, int]:
    """Cycles of the form and of the fabric: ``grid`` of rows and columns, tokens x inputs x outputs."""
    rows, columns = grid
    tokens, inputs, outputs = shape
    weights = np.zeros((inputs, outputs))
    weights[:: round(1 / density)] = 1
    fabric = Fabric(rows + 1, columns, spec)
    simulated = weight_streaming(fabric, np.ones((tokens, inputs)), weights, dtype).cycles
    pes = Grid.whole(spec.model_copy(update={"rows": rows, "columns": columns}))
    return streaming.weight_streaming(
        pes, *shape, dtype.torch_name, density
    ).total_cycles, simulated


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize(
    ("grid", "shape"),
    [
        ((2, 3), (7, 10, 8)),  # nothing divides
        ((2, 4), (32, 16, 8)),  # many tokens
        ((1, 12), (4, 12, 12)),  # trips of the ring, little else
        ((1, 8), (8, 32, 3)),  # fewer outputs than columns
    ],
)
def test_streamed_products_take_what_the_fabric_takes(
    spec: FabricSpec, grid: tuple[int, int], shape: tuple[int, int, int]
) -> None:
    """Within 5 %, however the product divides among the PEs."""
    form, simulated = _both(spec, grid, shape, Dtype.FP16)
    assert form == pytest.approx(simulated, rel=0.05)


def test_sums_longer_than_a_queue_wait_for_the_link() -> None:
    """On a WSE-3, 128 words of sums a PE: the slow link shows, but for what waits in the queue."""
    form, simulated = _both(WSE3, (1, 3), (256, 3, 4), Dtype.FP16)
    assert form == pytest.approx(simulated, rel=0.03)


def test_sparse_products_take_what_the_fabric_takes() -> None:
    """A quarter of the weights, evenly spread."""
    form, simulated = _both(WSE2, (2, 3), (16, 24, 6), Dtype.FP16, density=0.25)
    assert form == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize(
    ("dtype", "density"), [(Dtype.FP32, 1.0), (Dtype.FP16, 1.0), (Dtype.FP16, 0.25)]
)
@pytest.mark.parametrize("tokens", [4, 32])
def test_on_a_ring_of_one_pe_sums_are_put_in_place_between_the_axpys(
    spec: FabricSpec, dtype: Dtype, density: float, tokens: int
) -> None:
    """Nothing hides the set-up of the copy, whether all weights are there or a quarter of them."""
    form, simulated = _both(spec, (2, 1), (tokens, 16, 12), dtype, density)
    assert form == pytest.approx(simulated, rel=0.02)
