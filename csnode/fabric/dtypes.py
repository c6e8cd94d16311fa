"""Number formats of a PE: encoding in 32-bit words, and rounding of arithmetic.

A word holds one fp32 or two 16-bit elements, lower address first. Sums and products of 16-bit
elements are computed in fp32 and rounded once, to nearest even, when they are stored. So an fp16
accumulator rounds after every addition and an fp32 accumulator does not, as on the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Combine = Literal["add", "multiply", "maximum"]

COMBINATIONS: dict[Combine, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
}


class Dtype(IntEnum):
    """Storage format of an element."""

    FP32 = 0
    FP16 = 1
    BF16 = 2

    @property
    def num_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Dtype.FP32 else 2

    @property
    def per_word(self) -> int:
        """Elements in a 32-bit word, the payload of a wavelet."""
        return 4 // self.num_bytes

    @property
    def torch_name(self) -> str:
        """Name of the dtype in torch, which closed forms use."""
        return {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}[self.name]

    @property
    def raw(self) -> type[np.unsignedinteger[Any]]:
        """Integer type of the bits of one element."""
        return np.uint32 if self is Dtype.FP32 else np.uint16


def encode(values: Array, dtype: Dtype) -> Array:
    """Return the bits of ``values`` in a format: uint32 for fp32, uint16 for the others."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if dtype is Dtype.FP32:
        return single.view(np.uint32)
    if dtype is Dtype.FP16:
        with np.errstate(over="ignore"):
            return single.astype(np.float16).view(np.uint16)
    bits = single.view(np.uint32)
    nearest_even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(single), quiet, nearest_even >> np.uint32(16)).astype(np.uint16)


def decode(bits: Array, dtype: Dtype) -> Array:
    """Return the exact fp32 values of bits made by ``encode``."""
    if dtype is Dtype.FP32:
        return np.ascontiguousarray(bits, dtype=np.uint32).view(np.float32)
    if dtype is Dtype.FP16:
        return np.ascontiguousarray(bits, dtype=np.uint16).view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def combine_words(combine: Combine, left: Array, right: Array, dtype: Dtype) -> Array:
    """Combine two arrays of 32-bit words (uint32, one dimension) element by element."""
    elements = (decode(words.view(dtype.raw), dtype) for words in (left, right))
    with np.errstate(all="ignore"):  # infinities and NaN are values, as on the hardware
        return encode(COMBINATIONS[combine](*elements), dtype).view(np.uint32)


def multiply_add(
    weights: Array, factors: Array, sums: Array, dtype: Dtype, sum_dtype: Dtype
) -> Array:
    """Return the bits of ``weights * factors + sums``, rounded once to the format of the sums.

    Products are exact before they are added: fp32 operands are multiplied in fp64, others in fp32.
    """
    wide = np.float64 if dtype is Dtype.FP32 else np.float32
    with np.errstate(all="ignore"):
        product = decode(weights, dtype).astype(wide) * decode(factors, dtype).astype(wide)
        return encode(product + decode(sums, sum_dtype), sum_dtype)
