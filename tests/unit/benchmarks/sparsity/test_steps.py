"""Steps with sparse products beside both other arms, on models small enough for a test."""

from __future__ import annotations

import pytest

from benchmarks.sparsity.steps import BASES, measure_gpt, measure_steps


def test_every_arm_is_timed_beside_the_products() -> None:
    found = measure_steps((32, 1, 8), "float32", 0.1, turns=2)
    assert all(seconds > 0 for seconds in found["seconds"].values())
    for base in BASES:
        ratios = found[f"over_{base}"]
        assert ratios["middle_half"][0] <= ratios["elapsed"] <= ratios["middle_half"][1]


@pytest.mark.nightly
def test_sparse_products_of_a_gpt_have_the_loss_of_unpacked_ones() -> None:
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_heads": 2, "filter_size": 64}
    found = measure_gpt("fp32", 0.25, 1, small)
    losses = [found[arm]["loss"] for arm in ("unpacked", "products", "dense")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != losses[2]
