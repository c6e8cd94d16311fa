"""What travels of the sparse weights of one server: their non-zeros, and those of gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from memoryx.sparsity.masks import Masks
from wsc.core.nonzeros import Index
from wsc.core.packed_weights import PackedWeights, gradient_bucket, pays
from wsc.core.partial_sum import PartialSum
from wsc.core.payload import unpack
from wsc.core.program import BYTES_PER_ELEMENT, Bucket


class SparseStreams:
    """The streams of one server during one job.

    ``update`` is the number of a step's update, on which dense gradients depend; 0 if there is
    none.

    Args:
        masks: The masks of the server.
        stream_dtype: Type in which weights stream.
    """

    def __init__(self, masks: Masks, stream_dtype: str) -> None:
        self._masks = masks
        self._element_bytes = BYTES_PER_ELEMENT[stream_dtype]

    def weights(self, bucket: Bucket, update: int) -> PackedWeights | None:
        """Return how a bucket of weights is packed; None if no weight of it is sparse."""
        indexes = {name: index for name in bucket.names if (index := self._index(name))}
        if not indexes:
            return None
        dense = {name for name in indexes if self._has_dense_gradient(name, update)}
        return PackedWeights(bucket, indexes, dense)

    def gradients(self, bucket: Bucket, update: int) -> Bucket:
        """Return a gradient bucket of a step as it travels."""
        return gradient_bucket(bucket, self._gradient_indexes(bucket, update))

    def whole(self, bucket: Bucket, update: int, part: PartialSum) -> PartialSum:
        """Return the sum of a gradient bucket with the zeros that have not travelled.

        The sum that travelled is released.
        """
        travelled = self.gradients(bucket, update)
        if travelled is bucket:
            return part
        indexes = self._gradient_indexes(bucket, update)
        flat = torch.zeros(bucket.num_elements)
        pairs = zip(unpack(part.flat, travelled.specs), unpack(flat, bucket.specs), strict=True)
        for name, (values, dense) in zip(bucket.names, pairs, strict=True):
            if name in indexes:
                dense.view(-1).index_copy_(0, indexes[name].places, values)
            else:
                dense.copy_(values)
        part.release()
        return PartialSum([flat], is_owned=True)

    def pruned(
        self, bucket: Bucket, gradients: Mapping[str, torch.Tensor], update: int
    ) -> Mapping[str, torch.Tensor]:
        """Return gradients of a whole bucket with zeros where weights are masked.

        Those that have travelled without zeros have them already.
        """
        is_packed = self.gradients(bucket, update) is not bucket
        have_zeros = self._gradient_indexes(bucket, update) if is_packed else {}
        others = {name: g for name, g in gradients.items() if name not in have_zeros}
        return {**gradients, **self._masks.prune_gradients(others, update)}

    def _gradient_indexes(self, bucket: Bucket, update: int) -> dict[str, Index]:
        return {
            name: index
            for name in bucket.names
            if (index := self._index(name)) and not self._has_dense_gradient(name, update)
        }

    def _index(self, name: str) -> Index | None:
        """Return the index of a weight that travels sparse."""
        mask = self._masks.get(name)
        if mask is None or not mask.is_made:
            return None
        index = self._masks.index(name, self._element_bytes)
        return index if pays(index, self._element_bytes) else None

    def _has_dense_gradient(self, name: str, update: int) -> bool:
        return self._masks.spec(name).needs_dense_gradient(update)
