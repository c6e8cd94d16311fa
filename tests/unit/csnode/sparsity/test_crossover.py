"""Which products are sparse: by setting, shapes and density."""

from __future__ import annotations

from itertools import pairwise

import pytest

from csnode.engine.spec import EngineSpec
from csnode.sparsity.crossover import (
    CROSSOVERS,
    FEWEST_ELEMENTS,
    Product,
    highest_density,
    largest_density,
)
from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

LARGE = 2**20


@pytest.mark.parametrize("product", ["activations", "gradient"])
def test_auto_follows_the_table(product: Product) -> None:
    table = CROSSOVERS[product]
    assert all(rows < more for (rows, _), (more, _) in pairwise(table))
    for rows, density in table:
        assert largest_density("auto", product, rows, LARGE) == density <= highest_density("auto")


def test_auto_leaves_small_weights_dense() -> None:
    assert largest_density("auto", "activations", 128, FEWEST_ELEMENTS - 1) == 0


def test_a_stated_density_holds_for_every_size() -> None:
    assert largest_density(0.3, "gradient", 1, 4) == highest_density(0.3) == 0.3


def test_none_and_a_weight_beyond_32_bits_are_dense() -> None:
    assert largest_density("none", "activations", 128, LARGE) == highest_density("none") == 0
    assert largest_density(1.0, "activations", 128, 2**31) == 0


@pytest.mark.parametrize("value", [0, 1.5, -0.1, "never", True])
def test_anything_but_a_density_is_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        validate(EngineSpec, {"sparse_products": value}, "test")


@pytest.mark.parametrize("engine", [{"default": "wafer"}, {"kernels": {"matmul": "wafer"}}])
def test_sparse_products_need_products_on_torch(engine: dict[str, object]) -> None:
    with raises(ConfigError, "sparse-products-without-torch"):
        validate(EngineSpec, engine | {"sparse_products": "auto"}, "test")


def test_products_on_the_array_are_never_sparse() -> None:
    engine = EngineSpec(layers={"decoder.0": "wafer"}, sparse_products=0.1)
    assert engine.sparse_products_of("decoder.0") == "none"
    assert engine.sparse_products_of("decoder.1") == 0.1
