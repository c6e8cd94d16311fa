"""What travels of the sparse weights of one server: their non-zeros, and those of gradients."""

from __future__ import annotations

import torch

from memoryx.sparsity.masks import Masks
from waferstream.core.messages.payload import unpack
from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights, gradient_bucket, pays


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

    def received(self, bucket: Bucket, flat: torch.Tensor, update: int) -> dict[str, torch.Tensor]:
        """Return the gradients of a bucket as they have travelled, as views of their payload."""
        specs = self.gradients(bucket, update).specs
        return dict(zip(bucket.names, unpack(flat, specs), strict=True))

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
