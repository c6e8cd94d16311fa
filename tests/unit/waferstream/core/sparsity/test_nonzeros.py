"""Values and index of the non-zeros of a tensor: exact round trip, sizes and crossovers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.sparsity.nonzero_bytes import expected_bytes, expected_index_bytes
from waferstream.core.sparsity.nonzeros import Index
from waferstream.numerics.precision import CARRIED

SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)
STREAM_DTYPES = ("float32", "bfloat16", "float16", "cbfloat16")


def random_mask(num_elements: int, density: float, seed: int = 0) -> torch.Tensor:
    """Return a mask with exactly the rounded share of elements present."""
    mask = np.zeros(num_elements, bool)
    rng = np.random.default_rng(seed)
    mask[rng.choice(num_elements, round(num_elements * density), replace=False)] = True
    return torch.from_numpy(mask)


@settings(max_examples=150, deadline=None)
@given(
    shape=SHAPES,
    density=st.sampled_from((0.0, 0.02, 0.1, 0.3, 0.6, 0.97, 1.0)),
    dtype=st.sampled_from(STREAM_DTYPES),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip_is_exact(shape: tuple[int, ...], density: float, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random(shape) < density)
    carried = CARRIED[dtype]
    # Every bit pattern, so that zeros, infinities and NaNs of both signs are among the values.
    as_bits = {2: torch.int16, 4: torch.int32}[carried.itemsize]
    bits = torch.from_numpy(rng.integers(-(2**15), 2**15, shape)).to(as_bits)
    dense = torch.where(mask, bits * (1 if carried.itemsize == 2 else 65_537), 0)
    index = Index.of(mask, carried.itemsize)
    packed = index.pack(dense.view(carried))
    back = index.unpack(packed).reshape(shape)
    assert torch.equal(back.view(as_bits), dense)
    assert packed.numel() == index.num_present
    assert packed.nbytes + index.num_bytes <= dense.numel() * carried.itemsize


@settings(max_examples=100, deadline=None)
@given(gaps=st.lists(st.sampled_from((0, 1, 14, 15, 16, 30, 254, 255, 256, 511, 3000)), max_size=9))
def test_gaps_of_every_length_come_back(gaps: list[int]) -> None:
    places = np.cumsum(np.array(gaps, np.int64) + 1) - 1
    mask = torch.zeros(int(places[-1]) + 5 if gaps else 4000, dtype=torch.bool)
    mask[torch.from_numpy(places)] = True
    index = Index.of(mask)
    assert index.places.tolist() == places.tolist()
    assert torch.equal(index.mask, mask)


@pytest.mark.parametrize(
    ("density", "encoding"),
    [(0.01, "bytes"), (0.04, "bytes"), (0.05, "nibbles"), (0.1, "nibbles"), (0.24, "nibbles"),
     (0.26, "bitmap"), (0.9, "bitmap"), (0.93, "bitmap"), (0.95, "dense"), (1.0, "dense")],
)  # fmt: skip
def test_smallest_encoding_is_taken(density: float, encoding: str) -> None:
    assert Index.of(random_mask(200_000, density), 2).encoding == encoding


@pytest.mark.parametrize("density", [0.005, 0.03, 0.1, 0.2, 0.25, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_closed_form_is_within_1_percent(density: float, element_bytes: int) -> None:
    index = Index.of(random_mask(300_000, density), element_bytes)
    packed = index.num_present * element_bytes + index.num_bytes
    assert expected_bytes(300_000, density, element_bytes) == pytest.approx(packed, rel=0.01)


def test_one_block_of_zeros_takes_few_bytes() -> None:
    mask = torch.zeros(100_000, dtype=torch.bool)
    mask[:50] = True
    assert Index.of(mask).num_bytes == 25  # a half byte for each, and nothing behind them


def test_empty_index_takes_no_bytes() -> None:
    index = Index.of(torch.zeros(1000, dtype=torch.bool))
    assert (index.num_bytes, index.num_present) == (0, 0)
    assert index.unpack(torch.empty(0)).tolist() == [0.0] * 1000
    assert min(expected_index_bytes(1000, 0).values()) == 0


@pytest.mark.parametrize("density", [0.03, 0.1, 0.5])
def test_damaged_index_is_refused(density: float) -> None:
    index = Index.of(random_mask(2000, density))
    shorter = replace(index, data=index.data[: index.data.size // 2])
    with raises(ApplianceCorruptionError, "index-damaged"):
        _ = shorter.places
