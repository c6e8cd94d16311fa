"""Sparse tensors as values and index of their non-zeros: the format of streams and of files.

An *index* says which elements of a tensor are present, in the encoding that takes the fewest bytes
(waferstream.core.sparsity.nonzero_bytes). Values are packed in the order of the elements, so that
they are added and updated like any flat tensor; every bit of a present element survives, also that
of a zero. Absent elements are +0.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.sparsity.nonzero_bytes import GO_ON, Encoding, bitmap_bytes

_Bytes = np.ndarray
"""A flat array of bytes or of places."""


@dataclass(frozen=True, eq=False)
class Index:
    """Which elements of a tensor are present: ``num_present`` of ``num_elements``.

    A dense index has no ``data``: all elements are present, or it does not pay to leave any out.
    """

    encoding: Encoding
    num_elements: int
    num_present: int
    data: _Bytes = field(repr=False)

    @classmethod
    def of(cls, mask: torch.Tensor, element_bytes: int = 4) -> Index:
        """Return the smallest index of a boolean mask, for values of ``element_bytes`` each."""
        flat = mask.reshape(-1).numpy()
        places = np.flatnonzero(flat)
        sizes: dict[Encoding, int] = {"bitmap": bitmap_bytes(flat.size)}
        gaps = _gaps(places)
        sizes["nibbles"] = -(-_num_digits(gaps, GO_ON["nibbles"]) // 2)
        sizes["bytes"] = _num_digits(gaps, GO_ON["bytes"])
        encoding = min(sizes, key=lambda name: sizes[name])
        if places.size * element_bytes + sizes[encoding] >= flat.size * element_bytes:
            return cls.dense(flat.size)
        data = np.packbits(flat) if encoding == "bitmap" else _encoded(gaps, encoding)
        return cls(encoding, flat.size, places.size, data)

    @classmethod
    def dense(cls, num_elements: int) -> Index:
        """Return the index of a tensor whose elements are all present."""
        return cls("dense", num_elements, num_elements, np.empty(0, np.uint8))

    @property
    def num_bytes(self) -> int:
        """Bytes of the index itself."""
        return self.data.nbytes

    @cached_property
    def places(self) -> torch.Tensor:
        """The flat positions of the present elements, ascending.

        Raises:
            ApplianceCorruptionError: The bytes are no index of ``num_present`` elements.
        """
        if self.encoding == "dense":
            return torch.arange(self.num_elements)
        if self.encoding == "bitmap":
            places = np.flatnonzero(np.unpackbits(self.data, count=self.num_elements))
        else:
            places = _decoded(self.data, self.encoding)
        is_inside = places.size == 0 or places[-1] < self.num_elements
        if places.size != self.num_present or not is_inside:
            raise _damaged(self, places.size)
        return torch.from_numpy(places)

    @property
    def mask(self) -> torch.Tensor:
        """The flat boolean mask."""
        mask = torch.zeros(self.num_elements, dtype=torch.bool)
        mask[self.places] = True
        return mask

    def equals(self, other: Index) -> bool:
        """Return whether both place the same elements in the same encoding."""
        sizes = (self.encoding, self.num_elements, self.num_present)
        return sizes == (other.encoding, other.num_elements, other.num_present) and np.array_equal(
            self.data, other.data
        )

    def pack(self, dense: torch.Tensor) -> torch.Tensor:
        """Return the present elements of a tensor of any shape, flat."""
        flat = dense.reshape(-1)
        if self.encoding == "dense":
            return flat
        return flat.index_select(0, self.places.to(flat.device))

    def unpack(self, values: torch.Tensor) -> torch.Tensor:
        """Return a flat tensor with these present elements, zeros elsewhere."""
        if self.encoding == "dense":
            return values
        dense = torch.zeros(self.num_elements, dtype=values.dtype, device=values.device)
        return dense.index_copy_(0, self.places.to(values.device), values)


def _gaps(places: _Bytes) -> _Bytes:
    """Return the absent elements before each present one."""
    return np.diff(places, prepend=-1) - 1


def _num_digits(gaps: _Bytes, go_on: int) -> int:
    return gaps.size + int((gaps // go_on).sum())


def _encoded(gaps: _Bytes, encoding: Encoding) -> _Bytes:
    """Return gaps as digits: as often ``go_on`` as it is contained, then the rest."""
    go_on = GO_ON[encoding]
    more, rest = np.divmod(gaps, go_on)
    ends = np.cumsum(more + 1) - 1
    digits = np.full(ends[-1] + 1 if ends.size else 0, go_on, np.uint8)
    digits[ends] = rest
    if encoding == "bytes":
        return digits
    # An odd last half byte says "go on" to nothing, which is no gap.
    even = np.append(digits, np.uint8(go_on)) if digits.size % 2 else digits
    pairs: _Bytes = (even[0::2] << 4) | even[1::2]
    return pairs


def _decoded(data: _Bytes, encoding: Encoding) -> _Bytes:
    """Return the places that ``_encoded`` has written as gaps."""
    digits = data if encoding == "bytes" else np.stack((data >> 4, data & 15), axis=1).reshape(-1)
    absent = np.cumsum(digits, dtype=np.int64)[digits != GO_ON[encoding]]
    places: _Bytes = absent + np.arange(absent.size)
    return places


def _damaged(index: Index, found: int) -> ApplianceCorruptionError:
    return ApplianceCorruptionError(
        f"an index must place {index.num_present} of {index.num_elements} elements; got {found}",
        code="index-damaged",
        value=found,
        rule="the index of a sparse tensor agrees with its header",
        remedy="restart from a checkpoint; if it comes back, test the memory of the host",
    )
