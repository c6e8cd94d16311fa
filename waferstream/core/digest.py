"""Compute the SHA-256 of a model's weights, which a run prints to show bitwise reproducibility.

It covers the parameters in sorted name order; for each its UTF-8 name, dtype, shape, and raw
little-endian bytes of the fp32 master, so that equal digests mean equal bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def weights_digest(masters: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return the hexadecimal SHA-256 of (name, fp32 array) pairs, given in any order."""
    digest = hashlib.sha256()
    for name, array in sorted(masters, key=lambda pair: pair[0]):
        little_endian = np.ascontiguousarray(array, dtype="<f4")
        digest.update(name.encode())
        digest.update(b"float32")
        digest.update(str(tuple(array.shape)).encode())
        digest.update(little_endian.data)
    return digest.hexdigest()
