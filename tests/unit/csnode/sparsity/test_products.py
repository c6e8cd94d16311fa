"""Products from non-zeros: the values of dense ones, whatever lies where."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.sparsity.products import Pattern, sampled, times
from waferstream.core.sparsity.nonzeros import Index


def pattern_of(mask: torch.Tensor) -> Pattern:
    return Pattern(Index.of(mask), (mask.shape[0], mask.shape[1]))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(
    rows=st.integers(1, 9),
    outputs=st.integers(1, 24),
    inputs=st.integers(1, 24),
    density=st.sampled_from([0.0, 0.03, 0.2, 0.6, 1.0]),
    half=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_products_have_the_values_of_dense_ones(
    rows: int, outputs: int, inputs: int, density: float, half: torch.dtype, seed: int
) -> None:
    """Also with rows, columns or a whole weight without any non-zero, and several blocks."""
    mask = torch.rand(outputs, inputs, generator=torch.Generator().manual_seed(seed)) < density
    pattern = pattern_of(mask)
    values = pattern.index.pack(drawn(outputs, inputs, seed=seed + 1))
    weight = pattern.index.unpack(values).view(outputs, inputs)
    x, slope = drawn(rows, inputs, seed=seed + 2).to(half), drawn(rows, outputs).to(half)
    with pytest.MonkeyPatch.context() as small:
        small.setattr("csnode.sparsity.products.BLOCK_ROWS", 4)
        small.setattr("csnode.sparsity.products.SAMPLED_ROWS", 4)
        products = times(x, pattern.rows(values)), times(slope, pattern.columns(values))
        gradient = sampled(slope, x, pattern)
    assert all(product.is_contiguous() for product in products)
    exact = x.double() @ weight.double().t(), slope.double() @ weight.double()
    for found, expected in zip(products, exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    whole = slope.double().t() @ x.double()
    torch.testing.assert_close(gradient.double(), pattern.index.pack(whole), rtol=1e-4, atol=1e-4)


def test_sum_of_a_row_does_not_depend_on_the_other_rows() -> None:
    mask = drawn(40, 50) > 1
    pattern = pattern_of(mask)
    rows, x = pattern.rows(pattern.index.pack(drawn(40, 50))), drawn(130, 50, seed=1)
    whole = times(x, rows)
    assert all(torch.equal(whole[n:], times(x[n:], rows)) for n in (1, 63, 64, 129))


def test_density_counts_what_is_present() -> None:
    assert pattern_of(torch.eye(8, dtype=torch.bool)).density == 1 / 8
