"""The payload of a weight bucket in which some weights travel as values and index of non-zeros.

    int64            n, the number of sparse weights
    int64[n, 5]      place in the bucket, encoding, elements present, bytes of the index,
                     whether the gradient of the step is dense
    per weight       sparse: index, padded to 8 bytes, then values; dense: all elements

A payload with sparse weights is smaller than its bucket, so its size says which of both it is.
Gradients of sparse weights travel as values alone: the index came with the weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.payload import Payload
from waferstream.core.program.program import BYTES_PER_ELEMENT, TensorSpec
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzero_bytes import ENCODINGS, aligned
from waferstream.core.sparsity.nonzeros import Index

_WORD_BYTES = 8
_ROW_WORDS = 5
"""Table of a payload: int64 words, the number of rows first; a row for each sparse weight."""
FEWEST_SAVED_BYTES = 64
"""A weight that saves less is dense; more than the table and the padding of one weight take."""


class WeightPart(NamedTuple):
    """One weight of a packed bucket: where its values belong, None if it is dense, and these."""

    spec: TensorSpec
    places: Index | None
    values: torch.Tensor


@dataclass(frozen=True)
class PackedWeights:
    """What is packed in the payload of a bucket: ``indexes`` of its sparse weights, by name."""

    bucket: Bucket
    indexes: Mapping[str, Index]
    dense_gradients: Collection[str] = ()

    @property
    def num_bytes(self) -> int:
        """Size of the payload."""
        return self._table_bytes + sum(
            _index_bytes(index) + count * BYTES_PER_ELEMENT[spec.dtype]
            for spec, index, count in self._contents
        )

    def write(self, payload: Payload) -> None:
        """Write the table and all indexes to a payload, whose ``parts`` are then to be filled."""
        flat = payload.view(torch.uint8).numpy()
        places = [place for place, name in enumerate(self.bucket.names) if name in self.indexes]
        rows = [word for place in places for word in self._row(place)]
        flat[: self._table_bytes] = np.array([len(places), *rows], np.int64).view(np.uint8)
        start = self._table_bytes
        for spec, index, count in self._contents:
            if index is not None:
                flat[start : start + index.num_bytes] = index.data
            start += _index_bytes(index) + count * BYTES_PER_ELEMENT[spec.dtype]

    @classmethod
    def read(
        cls, bucket: Bucket, payload: Payload, known: Mapping[str, Index]
    ) -> PackedWeights | None:
        """Return the packed weights of a payload; None if its weights are all dense.

        Args:
            bucket: The bucket.
            payload: Its payload.
            known: Indexes that have come before; one that comes again is not decoded again.

        Raises:
            ApplianceCorruptionError: The bytes are not those of the bucket.
        """
        if payload.num_bytes == bucket.num_bytes:
            return None
        flat = payload.view(torch.uint8).numpy()
        rows = _rows(flat, bucket)
        start = _WORD_BYTES + rows.nbytes
        by_place = {int(row[0]): row for row in rows}
        indexes: dict[str, Index] = {}
        for place, spec in enumerate(bucket.specs):
            count = spec.num_elements
            if place in by_place:
                _, code, count, index_bytes, _ = map(int, by_place[place])
                data = flat[start : start + index_bytes]
                index = Index(ENCODINGS[code], spec.num_elements, count, data)
                indexes[spec.name] = _same(known.get(spec.name), index)
                start += aligned(index_bytes)
            start += count * BYTES_PER_ELEMENT[spec.dtype]
        if start != flat.size:
            raise _damaged(bucket, flat.size)
        names = bucket.names
        return cls(bucket, indexes, {names[int(row[0])] for row in rows if row[4]})

    def parts(self, payload: Payload, dtype: torch.dtype) -> Iterator[WeightPart]:
        """Yield each weight with a view of its values in a payload."""
        flat = payload.view(torch.uint8)
        start = self._table_bytes
        for spec, index, count in self._contents:
            start += _index_bytes(index)
            stop = start + count * dtype.itemsize
            yield WeightPart(spec, index, flat[start:stop].view(dtype))
            start = stop

    @property
    def gradient_indexes(self) -> dict[str, Index]:
        """The indexes of the weights whose gradients travel as values of non-zeros."""
        return {n: index for n, index in self.indexes.items() if n not in self.dense_gradients}

    @property
    def _table_bytes(self) -> int:
        return _WORD_BYTES * (1 + _ROW_WORDS * len(self.indexes))

    @property
    def _contents(self) -> Iterator[tuple[TensorSpec, Index | None, int]]:
        """Each weight with its index and the number of its values."""
        for spec in self.bucket.specs:
            index = self.indexes.get(spec.name)
            yield spec, index, spec.num_elements if index is None else index.num_present

    def _row(self, place: int) -> tuple[int, ...]:
        name = self.bucket.names[place]
        index = self.indexes[name]
        code = ENCODINGS.index(index.encoding)
        return place, code, index.num_present, index.num_bytes, name in self.dense_gradients


def pays(index: Index, element_bytes: int) -> bool:
    """Return whether a weight takes clearly fewer bytes as values and index."""
    absent = index.num_elements - index.num_present
    return absent * element_bytes - aligned(index.num_bytes) >= FEWEST_SAVED_BYTES


def gradient_bucket(bucket: Bucket, indexes: Mapping[str, Index]) -> Bucket:
    """Return a gradient bucket as it travels: of weights with an index, the values alone.

    A bucket of which nothing would be left travels whole.
    """
    specs = tuple(
        replace(spec, shape=(indexes[spec.name].num_present,)) if spec.name in indexes else spec
        for spec in bucket.specs
    )
    packed = replace(bucket, specs=specs)
    return packed if specs != bucket.specs and packed.num_elements else bucket


def _index_bytes(index: Index | None) -> int:
    return 0 if index is None else aligned(index.num_bytes)


def _same(known: Index | None, index: Index) -> Index:
    """Return a known index if it is equal, else one that does not read the payload any more."""
    if known is not None and known.equals(index):
        return known
    return replace(index, data=index.data.copy())


def _rows(flat: np.ndarray, bucket: Bucket) -> np.ndarray:
    """Return the table of a payload, each row within its limits."""
    head = flat[:_WORD_BYTES]
    count = int(head.view(np.int64)[0]) if head.size == _WORD_BYTES else 0
    if not 0 < count <= len(bucket.specs):
        raise _damaged(bucket, flat.size)
    words = flat[_WORD_BYTES : _WORD_BYTES * (1 + _ROW_WORDS * count)]
    if words.size != _WORD_BYTES * _ROW_WORDS * count:
        raise _damaged(bucket, flat.size)
    rows = words.view(np.int64).reshape(count, _ROW_WORDS)
    most = (len(bucket.specs) - 1, len(ENCODINGS) - 1, bucket.num_elements, flat.size, 1)
    is_ascending = bool((np.diff(rows[:, 0]) > 0).all())
    if not is_ascending or (rows < 0).any() or (rows > np.array(most)).any():
        raise _damaged(bucket, flat.size)
    return rows


def _damaged(bucket: Bucket, num_bytes: int) -> ApplianceCorruptionError:
    return ApplianceCorruptionError(
        f"a payload of {num_bytes} bytes must be the weights of bucket {bucket.index}",
        code="packed-weights-damaged",
        where=", ".join(bucket.names[:3]),
        value=num_bytes,
        rule=f"{bucket.num_bytes} bytes, or values and index as their table states",
        remedy="restart from a checkpoint; if it comes back, test the memory of the host",
    )
