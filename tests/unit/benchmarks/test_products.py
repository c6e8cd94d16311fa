"""Ways to multiply: what is compared is the same product."""

from __future__ import annotations

import torch

from benchmarks.products import measured


def test_measured_compares_each_way_with_one_product_per_micro_batch() -> None:
    found = measured((8, 16, 32), torch.float32, repeats=2)
    assert [one.way.partition(",")[0] for one in found][:2] == ["forward", "input gradient"]
    assert all(len(one.ratios) == 2 and min(one.ratios) > 0 for one in found)
    assert "8 x   16 ->   32" in str(found[0])
