"""Storage formats agree bit for bit with torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric.dtypes import Array, Dtype, combine_words, decode, encode, multiply_add

TORCH = {Dtype.FP32: torch.float32, Dtype.FP16: torch.float16, Dtype.BF16: torch.bfloat16}


SINGLES = st.lists(st.floats(width=32), min_size=2, max_size=32)


def rounded(values: Sequence[float] | Array, dtype: Dtype) -> Array:
    return torch.tensor(values, dtype=torch.float32).to(TORCH[dtype]).float().numpy()


@pytest.mark.parametrize("dtype", Dtype)
@given(values=SINGLES)
def test_encode_rounds_like_torch(dtype: Dtype, values: list[float]) -> None:
    """Stored values are rounded to nearest even; NaN and infinity are kept."""
    stored = decode(encode(np.array(values, dtype=np.float32), dtype), dtype)
    np.testing.assert_array_equal(stored, rounded(values, dtype))


@pytest.mark.parametrize("dtype", Dtype)
def test_combine_words_handles_two_16_bit_elements(dtype: Dtype) -> None:
    """Combining words combines all elements in them, each rounded to its format."""
    left, right = np.linspace(-3, 3, 8), np.linspace(1, 2, 8)
    a, b = (encode(x, dtype).view(np.uint32) for x in (left, right))
    total = combine_words("add", a, b, dtype).view(dtype.raw)
    expected = (rounded(left, dtype).astype(np.float64) + rounded(right, dtype)).tolist()
    np.testing.assert_array_equal(decode(total, dtype), rounded(expected, dtype))


def test_multiply_add_rounds_to_the_dtype_of_the_sum() -> None:
    """2048 + 1 is 2048 in fp16 and 2049 in fp32."""
    one, large = np.ones(1), np.full(1, 2048.0)
    for sums, expected in ((Dtype.FP16, 2048.0), (Dtype.FP32, 2049.0)):
        bits = multiply_add(
            encode(one, Dtype.FP16), encode(one, Dtype.FP16), encode(large, sums), Dtype.FP16, sums
        )
        assert decode(bits, sums)[0] == expected


def test_multiply_add_keeps_the_exact_product() -> None:
    """A fused multiply-add keeps the low bits of the product that two roundings would lose."""
    factor = encode(np.array([1 + 2**-12]), Dtype.FP32)
    bits = multiply_add(
        factor,
        factor,
        encode(np.array([-1 - 2**-11]), Dtype.FP32),
        Dtype.FP32,
        Dtype.FP32,
    )
    assert decode(bits, Dtype.FP32)[0] == 2**-24
