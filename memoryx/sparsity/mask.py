"""The mask of one weight: which of its elements are not zero, a bit each."""

from __future__ import annotations

from math import prod

import numpy as np
import torch

from memoryx.optim.rule import Shape
from waferstream.checkpoint.packed import BITS_PER_WORD, mask_bits, num_words


def words_shape(shape: Shape) -> Shape:
    """Return the shape of the words that hold the mask of a weight."""
    return (num_words(shape),)


class SparsityMask:
    """The mask of a weight.

    Bit i of the bytes, lowest first, says whether element i of the flat weight is kept; bits behind
    the last element are zero.

    Args:
        name: The weight.
        shape: Its shape.
        words: Memory for the mask, of ``words_shape``, in the store's fp32 memory; its bits are no
            numbers.
    """

    def __init__(self, name: str, shape: Shape, words: torch.Tensor) -> None:
        self.name = name
        self.shape = shape
        self.words = words
        self.version = 0
        """Another number whenever the mask has changed; 0 before it was made."""

    @property
    def is_made(self) -> bool:
        """Whether the mask was made or read."""
        return self.version > 0

    @property
    def integers(self) -> torch.Tensor:
        """The words as integers: what a checkpoint has, and what travels."""
        return self.words.view(torch.int32)

    @property
    def bits(self) -> np.ndarray:
        """The words, as bytes."""
        return self.words.numpy().view(np.uint8)

    def dense(self) -> torch.Tensor:
        """Return the mask as booleans in the shape of the weight."""
        return mask_of(self.words.numpy(), self.shape)

    @property
    def num_elements(self) -> int:
        """The number of weights."""
        return prod(self.shape)

    @property
    def num_kept(self) -> int:
        """The number of weights that are not masked."""
        return int(np.bitwise_count(self.bits).sum(dtype=np.int64))

    @property
    def density(self) -> float:
        """The share of weights that are not masked; 1 for an empty tensor."""
        return self.num_kept / self.num_elements if self.num_elements else 1.0

    def set(self, dense: torch.Tensor) -> None:
        """Replace the mask."""
        self.integers.copy_(mask_words(dense))
        self.note_changed()

    def note_changed(self) -> None:
        """Note that the words have changed."""
        self.version += 1


def mask_words(dense: torch.Tensor) -> torch.Tensor:
    """Return a boolean mask as words in the form of ``SparsityMask.integers``."""
    bits = np.packbits(dense.reshape(-1).numpy(), bitorder="little")
    words = np.zeros(words_shape(tuple(dense.shape))[0] * BITS_PER_WORD // 8, np.uint8)
    words[: bits.size] = bits
    return torch.from_numpy(words.view(np.int32))


def mask_of(words: np.ndarray, shape: Shape) -> torch.Tensor:
    """Return the booleans of a mask of words, of whatever 32-bit type."""
    return torch.from_numpy(mask_bits(words, shape)).view(shape)
