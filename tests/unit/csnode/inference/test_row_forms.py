"""Forms by row: the same bits in any company, and the values of the functions themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
import torch

from csnode.inference.attention import CachedAttention
from csnode.inference.cache import KvCache
from csnode.inference.row_forms import packed_expert_product
from modelzoo.models.blocks.attention import causal_attention
from modelzoo.models.blocks.experts import expert_product
from waferstream.core.serving import Part

HEADS, WIDTH, LENGTH = 2, 8, 200
WAYS: dict[str, dict[str, Any]] = {
    "windowed": {"window": 70},
    "narrow": {"window": 3, "first_tokens": 2},
    "capped": {"cap": 2.0},
    "all": {"window": 70, "cap": 2.0},
    "sinks": {"window": 70, "sinks": torch.tensor([0.5, -1.0])},
}


def rows_of(seed: int) -> torch.Tensor:
    return torch.randn(3, LENGTH, HEADS, 1, WIDTH, generator=torch.Generator().manual_seed(seed))


def chunks() -> Iterator[tuple[int, int]]:
    start = 0
    for length in cycle((1, 2, 5, 1, 30)):
        end = min(start + length, LENGTH)
        yield start, end
        if end == LENGTH:
            return
        start = end


@pytest.mark.parametrize("way", WAYS)
def test_attention_of_a_row_is_the_same_in_steps_and_company(way: str) -> None:
    """To the bit; and as the function says."""
    rows, other = rows_of(0), rows_of(1)
    cache, more = KvCache(), WAYS[way]

    def attend(*parts: tuple[str, torch.Tensor, int, int]) -> torch.Tensor:
        attention = CachedAttention(cache)
        attention.begin([Part(n, s, (0,) * (e - s)) for n, _, s, e in parts])
        query, key, value = (torch.cat([x[i, s:e] for _, x, s, e in parts]) for i in range(3))
        return attention(query, key, value, 0, 0.5, **more)

    at_once = attend(("a", rows, 0, LENGTH))
    for start, end in chunks():
        found = attend(("c", other, start, end), ("b", rows, start, end))[end - start :]
        assert torch.equal(found, at_once[start:end])
    query, key, value = rows.transpose(1, 3)  # (1, heads, T, D)
    expected = causal_attention(query, key, value, scale=0.5, **more)
    torch.testing.assert_close(at_once.transpose(0, 2), expected)


def test_product_of_an_expert_is_the_same_in_any_company() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=generator) for size in ((40, 16), (3, 24, 16)))
    product = packed_expert_product(weight)
    ends = torch.tensor([7, 7, 40], dtype=torch.int32)
    found = product(x, ends)
    torch.testing.assert_close(found, expert_product(x, weight, ends))
    for row in range(7):
        alone = product(x[row : row + 1], torch.tensor([1, 1, 1]))
        assert torch.equal(alone[0], found[row])
    for row in (7, 39):
        alone = product(x[row : row + 1], torch.tensor([0, 0, 1]))
        assert torch.equal(alone[0], found[row])
