"""Packed tensors of a checkpoint: the values of a sparse parameter that its mask leaves.

They have one dimension; the order is that of the whole tensor in memory. ``sparsity.mask.<name>``
says where the values belong, of the parameter and of its optimizer state alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from waferstream.checkpoint import CLUSTER_STATES, SPARSITY_MASK, parameter_of
from waferstream.core.program.program import TensorSpec

BITS_PER_WORD = 32


@dataclass(frozen=True)
class PackedSpec(TensorSpec):
    """Name, shape and dtype of a packed tensor, and the shape of the ``whole`` one."""

    whole: tuple[int, ...] = ()


def num_words(shape: tuple[int, ...]) -> int:
    """Return the number of words that hold the mask of a parameter."""
    return -(-prod(shape) // BITS_PER_WORD)


def mask_bits(words: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the flat booleans of a mask of 32-bit words."""
    bits = np.unpackbits(words.view(np.uint8), count=prod(shape), bitorder="little")
    return bits.view(np.bool_)


def mask_key(key: str) -> str | None:
    """Return the key of the mask of a tensor; None for one that can have none."""
    for state, prefix in CLUSTER_STATES.items():
        if key.startswith(f"{prefix}.") and state != "sparsity":
            parameter = parameter_of(key.removeprefix(f"{prefix}."), state)
            return f"{SPARSITY_MASK}.{parameter}"
    return None


def unpack_into(out: np.ndarray, values: np.ndarray, words: np.ndarray) -> None:
    """Write a whole tensor; ValueError if the mask leaves another number of values."""
    bits = mask_bits(words, out.shape)
    found = np.count_nonzero(bits)
    if found != values.size:
        raise ValueError(f"its mask leaves {found} values, not {values.size}")
    flat = out.reshape(-1)
    flat[:] = 0
    flat[bits] = values
