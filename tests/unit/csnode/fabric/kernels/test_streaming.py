"""Weight streaming: values as in torch, outputs spread as inputs, and cycles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric.defects import random_defects
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.kernels.streaming import streamed_layers, weight_streaming
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from tests.support.timing.fabric import EPSILON, normal
from waferstream.core.errors import ApplianceCompilationError, ApplianceResourceExhausted
from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec

RANDOM = np.random.default_rng(5)


ALL_DTYPES = pytest.mark.parametrize("dtype", Dtype)


def agree(values: Array, x: Array, *layers: Array, dtype: Dtype) -> None:
    """Check values against torch, with a rounding per input of each layer."""
    expected = torch.from_numpy(np.asarray(x, dtype=np.float64))
    roundings, scale = 0, 1.0
    for layer in layers:
        expected = expected @ torch.from_numpy(np.asarray(layer, dtype=np.float64))
        roundings += layer.shape[0]
        scale = max(scale, float(expected.abs().max()))
    tolerance = roundings * EPSILON[dtype] * scale
    np.testing.assert_allclose(values, expected.numpy(), rtol=0, atol=tolerance)


def small(*shape: int) -> Array:
    """Return whole numbers whose products and sums are exact in every format."""
    return RANDOM.integers(-2, 3, shape)


@ALL_DTYPES
@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize("outputs", [2, 7])
def test_weight_streaming_gives_the_product(dtype: Dtype, spec: FabricSpec, outputs: int) -> None:
    """11 inputs and 2 or 7 outputs on 4 columns, 6 tokens on 2 rows: nothing divides evenly."""
    x, w = normal(dtype, 6, 11), normal(dtype, 11, outputs)
    agree(weight_streaming(Fabric(3, 4, spec), x, w, dtype).values, x, w, dtype=dtype)


@settings(max_examples=20, deadline=None)
@given(
    grid=st.tuples(st.integers(2, 3), st.integers(1, 6)),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 8)),
    dtype=st.sampled_from(Dtype),
)
def test_weight_streaming_fits_any_shape_on_any_grid(
    grid: tuple[int, int], shape: tuple[int, int, int], dtype: Dtype
) -> None:
    """Uneven tokens, inputs and outputs are padded; whole numbers come out exactly."""
    tokens, inputs, outputs = shape
    x, w = small(tokens, inputs), small(inputs, outputs)
    values = weight_streaming(Fabric(*grid), x, w, dtype).values
    np.testing.assert_array_equal(values, x @ w)


@ALL_DTYPES
@pytest.mark.parametrize("columns", [1, 3])
def test_streamed_layers_chain_outputs_to_inputs(dtype: Dtype, columns: int) -> None:
    """(x w1) w2 in one program has the bits of two programs, in less time."""
    x, first, second = normal(dtype, 4, 5), normal(dtype, 5, 7), normal(dtype, 7, 4)
    fabric = Fabric(3, columns)
    both = streamed_layers(fabric, x, [first, second], dtype)
    between = weight_streaming(fabric, x, first, dtype)
    after = weight_streaming(fabric, between.values, second, dtype)
    np.testing.assert_array_equal(both.values, after.values)
    agree(both.values, x, first, second, dtype=dtype)
    assert both.cycles < between.cycles + after.cycles


def test_weight_streaming_spreads_outputs_as_inputs() -> None:
    """Ten outputs on four columns lie as ten inputs do: three each, one on the last."""
    x, w = small(2, 10), small(10, 10)
    outcome = weight_streaming(Fabric(2, 4), x, w).outcome
    resting, kept = (outcome.read(name)[1].reshape(4, 3, 2) for name in ("x", "y 0"))
    for matrix, tiles in ((x, resting), (x @ w, kept)):
        lies = tiles.reshape(12, 2).T
        np.testing.assert_array_equal(lies[:, :10], matrix)
        np.testing.assert_array_equal(lies[:, 10:], 0)


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
def test_weight_streaming_skips_zero_weights(dtype: Dtype) -> None:
    """Sparse weights give the bits of the dense product, with fewer wavelets and cycles."""
    x, w = normal(dtype, 16, 32), normal(dtype, 32, 5)
    w[RANDOM.random(w.shape) < 0.75] = 0
    fabric = Fabric(3, 4)
    sparse = weight_streaming(fabric, x, w, dtype)
    dense = weight_streaming(fabric, x, np.where(w == 0, 1e-30, w), dtype)
    agree(sparse.values, x, w, dtype=dtype)
    if dtype is Dtype.FP16:  # 1e-30 is zero in fp16, but was a weight of the dense stream
        np.testing.assert_array_equal(sparse.values, dense.values)
    assert dense.outcome.sent - sparse.outcome.sent == np.count_nonzero(w == 0)
    assert sparse.cycles < dense.cycles


def test_weight_streaming_zeroes_outputs_without_weights() -> None:
    """Accumulators keep nothing of the output before."""
    x, w = normal(Dtype.FP16, 4, 6), normal(Dtype.FP16, 6, 6)
    w[:, 2:5] = 0
    values = weight_streaming(Fabric(3, 3), x, w, Dtype.FP16).values
    np.testing.assert_array_equal(values[:, 2:5], 0)
    assert (values[:, [0, 1, 5]] != 0).all()


@ALL_DTYPES
def test_weight_streaming_on_a_wafer_with_defects(dtype: Dtype) -> None:
    """Rings over working PEs have longer links: more cycles, the same values."""
    spec = override(WSE2, rows=8, columns=10)
    x, w = normal(dtype, 8, 9), normal(dtype, 9, 10)
    healthy = weight_streaming(Fabric(5, 7, spec), x, w, dtype)
    defects = random_defects(spec, 3, 0.9, 0.97)
    fabric = Fabric(5, 7, spec, defects)
    on_defects = weight_streaming(fabric, x, w, dtype)
    assert fabric.east_cycles[1:].max() > 1
    np.testing.assert_array_equal(on_defects.values, healthy.values)
    assert on_defects.cycles > healthy.cycles


def test_weight_streaming_hides_the_ring() -> None:
    """With long axpys, another output costs its axpys and additions, but no set-up and no trip."""
    features, tokens = 8, 16
    x, w = small(tokens, 4 * features), np.ones((4 * features, 16))
    few, many = (weight_streaming(Fabric(2, 4), x, w[:, :n], Dtype.FP16).cycles for n in (8, 16))
    axpys, additions = features * (tokens // 4 + WSE2.triggered_cycles), tokens // 2
    control, signal = 1, 1
    assert many - few == pytest.approx(8 * (axpys + additions + control + signal), rel=0.03)


def test_streamed_layers_refuse_what_does_not_fit() -> None:
    """Layers that do not fit each other, no layer, no row for tokens, too much for a PE."""
    x, w = np.ones((4, 6)), np.ones((6, 5))
    for rows, layers in ((3, [w, w]), (3, []), (1, [w])):
        with raises(ApplianceCompilationError, "layers-not-streamable"):
            streamed_layers(Fabric(rows, 2), x, layers)
    with raises(ApplianceResourceExhausted, "pe-sram-exceeded"):
        weight_streaming(Fabric(2, 2), np.ones((5000, 6)), w)
