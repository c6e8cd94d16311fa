"""Masks that change are the same on real Ray as in one process."""

from __future__ import annotations

import pytest

from tests.support.runs.tiny_training import GPT, Shape, init_config, train_on_cluster

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.mark.parametrize("products", ["none", 0.5])
def test_rigl_on_ray_equals_the_local_cluster(products: float | str) -> None:
    """With dense products and with sparse ones."""
    rigl = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}
    init = init_config(GPT | {"num_hidden_layers": 1}, sparsity=rigl)
    engine = {"sparse_products": products}
    found = train_on_cluster(init, Shape(2, 4, 2, kind="ray", engine=engine), 4)
    assert found == train_on_cluster(init, Shape(engine=engine), 4)
