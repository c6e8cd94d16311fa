"""Sparse forms of the products of a linear layer compute what the dense ones do."""

from __future__ import annotations

import pytest
import torch

from benchmarks.sparsity.products import (
    PRODUCTS,
    lost_by_auto,
    measure_density,
    speed_up,
)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_sparse_forms_compute_the_dense_products(dtype: torch.dtype, most: float) -> None:
    found = measure_density((12, 24, 40), 0.2, dtype, turns=1)
    assert tuple(found) == PRODUCTS
    assert all(one["difference"] < most for one in found.values())
    assert speed_up(found) >= 1


def test_speed_up_takes_the_faster_form_of_each_product() -> None:
    pairs = {"a": {"dense_s": 3.0, "sparse_s": 1.0}, "b": {"dense_s": 1.0, "sparse_s": 4.0}}
    assert speed_up(pairs) == 2.0


def test_auto_loses_where_a_sparse_form_that_it_takes_is_slower() -> None:
    times = {"dense_s": 1.0, "sparse_s": 2.0}
    points = [
        {"shape": (128, 1024, 1024), "density": density, "products": {"outputs": times}}
        for density in (0.1, 0.9)
    ]
    assert list(lost_by_auto(points)) == ["128 x 1024 x 1024, density 0.1, outputs: 0.50"]
