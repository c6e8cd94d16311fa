"""Order of samples: a function of seed, epoch and position only.

The samples of all epochs form one endless stream; position k holds sample k mod n of epoch
k div n. Each epoch's shuffle is a keyed permutation that is computed per position, so any step of
a dataset of any length takes constant time and no memory. It is a Feistel network (Luby and Rackoff
1988) over the next power of four, applied again until the result is below n (cycle-walking: Black
and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from waferstream.core.rng import stream_key

Draw = Callable[[], float]
"""Returns the next random number, evenly spread in [0, 1)."""

_NUM_ROUNDS = 6
"""Rounds of the network. Four suffice with pseudo-random functions (Luby and Rackoff 1988); the
hash used here is weaker, so there are more."""


@dataclass(frozen=True)
class SampleOrder:
    """Sample at each position of the stream, for epochs of ``num_samples``."""

    num_samples: int
    shuffle: bool
    seed: int

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the sample indices at int64 stream positions."""
        epochs, offsets = np.divmod(positions, self.num_samples)
        if not self.shuffle:
            return offsets
        indices = np.empty_like(offsets)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            indices[inside] = self._permute(offsets[inside], int(epoch))
        return indices

    def _permute(self, offsets: np.ndarray, epoch: int) -> np.ndarray:
        """Return the shuffled sample of each offset of an epoch."""
        keys = [stream_key(self.seed, "order", epoch, index) for index in range(_NUM_ROUNDS)]
        half_bits = max(1, -(-(self.num_samples - 1).bit_length() // 2))
        indices = _feistel(offsets.astype(np.uint64), keys, half_bits)
        while (outside := indices >= self.num_samples).any():
            indices[outside] = _feistel(indices[outside], keys, half_bits)
        return indices.astype(np.int64)


def _feistel(values: np.ndarray, keys: list[int], half_bits: int) -> np.ndarray:
    """Permute [0, 4**half_bits); each round is its own inverse, so any mixing function serves."""
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (mix64(right ^ np.uint64(key)) & mask)
    return (left << shift) | right


def mix64(values: np.ndarray) -> np.ndarray:
    """Scramble uint64 values, modulo 2**64: the output function of SplitMix64.

    Constants: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014, section 5 (variant 13).
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: np.ndarray = mixed ^ (mixed >> np.uint64(31))
    return scrambled


def draws(seed: int, name: str, place: int) -> Draw:
    """Return the random numbers, called ``name``, of a place in the stream of samples."""
    return Random(stream_key(seed, name, place)).random


def standard_normal(hashes: np.ndarray) -> np.ndarray:
    """Return standard normal fp32 numbers from pairs of hashes (Box and Muller 1958)."""
    upper_bits = (hashes >> np.uint64(11)).astype(np.float64)
    radius, angle = (upper_bits + 0.5) / 2.0**53  # inside (0, 1), so that the logarithm is finite
    numbers: np.ndarray = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return numbers.astype(np.float32)
