"""Sizes of sparse tensors that are sent or stored as values and index of their non-zeros.

Three encodings of an index and their bytes, for ``n`` elements of which a share ``d`` is present:

    bitmap   one bit per element                                  n / 8
    nibbles  zeros before each present element, 4 bits, 15 = go on  n d / 2 (1 + E(15))
    bytes    the same with 8 bits, 255 = go on                      n d (1 + E(255))

The zeros before a present element of a random pattern are geometric, so ``m`` of them fit in
``E(m) = q^m / (1 - q^m)`` times on average, with ``q = 1 - d``. A tensor whose values and index
take no fewer bytes than all of its elements is *dense*: it has no index.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Literal, get_args

Encoding = Literal["dense", "bitmap", "nibbles", "bytes"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
"""In the order of their codes on the wire."""

GO_ON = {"nibbles": 15, "bytes": 255}
"""The digit of a gap that says that the next digit belongs to the same gap."""

ALIGNMENT_BYTES = 8
"""Values of every dtype start at a multiple of this."""


def aligned(num_bytes: int) -> int:
    """Return the bytes up to the next multiple of the alignment."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def bitmap_bytes(num_elements: int) -> int:
    """Return the bytes of an index with one bit per element."""
    return -(-num_elements // 8)


def expected_index_bytes(num_elements: int, num_present: int) -> dict[Encoding, int]:
    """Return the bytes of an index of a random pattern, by encoding, rounded up."""
    if num_present == 0:
        return {"bitmap": bitmap_bytes(num_elements), "nibbles": 0, "bytes": 0}
    absent = 1 - num_present / num_elements

    def digits(most: int) -> float:
        exceeded = absent**most
        return num_present * (1 + exceeded / (1 - exceeded))

    return {
        "bitmap": bitmap_bytes(num_elements),
        "nibbles": ceil(digits(GO_ON["nibbles"]) / 2),
        "bytes": ceil(digits(GO_ON["bytes"])),
    }


@lru_cache(maxsize=1024)  # layers repeat
def expected_bytes(num_elements: int, density: float, element_bytes: int) -> int:
    """Return the bytes of values and index of a tensor whose non-zeros are at random places.

    The closed form of what ``waferstream.core.sparsity.nonzeros`` packs, without headers and
    alignment.

    Args:
        num_elements: Elements of the tensor, zeros included.
        density: Share of the elements that are present.
        element_bytes: Bytes of one value.
    """
    num_present = round(num_elements * density)
    index = min(expected_index_bytes(num_elements, num_present).values())
    return min(num_elements * element_bytes, num_present * element_bytes + index)
