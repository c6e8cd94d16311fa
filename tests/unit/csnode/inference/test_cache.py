"""The cache of sequences: blocks, pages, and their end."""

from __future__ import annotations

import torch

from csnode.inference.cache import BLOCK, PAGE, KvCache

HEADS = 2


def test_cache_grows_by_blocks_and_forgets() -> None:
    cache = KvCache()
    rows = torch.randn(BLOCK + 1, HEADS, 4)
    keys, _ = cache.extend("a", 0, 0, rows, rows)
    assert keys.shape == (HEADS, 2 * BLOCK, 4)
    assert torch.equal(keys[:, : BLOCK + 1], rows.transpose(0, 1))
    assert not keys[:, BLOCK + 1 :].any()
    assert cache.num_bytes == 2 * HEADS * PAGE * 4 * 4
    cache.forget(["a"])
    cache.forget(["a"])
    assert cache.num_bytes == 0
