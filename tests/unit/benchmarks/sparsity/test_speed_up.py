"""The emulated speed-up by share of zeros, of a product and of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sparsity.speed_up import DENSITIES, draw, product_speed_up, step_speed_up
from tests.support.timing.reference_rows import tiny_training_row


def test_product_gets_faster_with_zeros_and_stays_below_the_ideal() -> None:
    points = product_speed_up(4096, 20_000)
    speeds = [point["speed_up"] for point in points]
    assert speeds == sorted(speeds)
    assert speeds[0] == 1.0
    assert all(point["error"] <= 0 for point in points)


@pytest.mark.nightly
def test_step_gets_less_faster_than_its_products(tmp_path: Path) -> None:
    """Attention and the fixed time of segments stay; it is drawn."""
    row = tiny_training_row(hidden="2048", heads="16", seq_len="512", ffn="8192")
    step = step_speed_up(row, 528, DENSITIES)
    product = product_speed_up(4096, 20_000)
    assert step[0]["speed_up"] == 1.0
    assert 1.0 < step[-1]["speed_up"] < product[-1]["speed_up"]
    picture = tmp_path / "speed_up.png"
    draw({"product": product, "step": step, "published": []}, picture)
    assert picture.stat().st_size > 1000
