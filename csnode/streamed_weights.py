"""The weights of a segment as kernels take them, read from the payloads that have streamed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from csnode.engine.spec import EngineSpec
from csnode.sparsity.crossover import SparseProducts
from csnode.sparsity.weights import NonZeros, PackedWeight, SparseWeights
from waferstream.core.messages.payload import Payload, is_aligned, unpack
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.sparsity.packed_weights import PackedWeights
from waferstream.numerics.precision import CARRIED, read_stream


class StreamedWeights:
    """Reads the weights of one program; from call to call it keeps the indexes of sparse ones."""

    def __init__(self, program: Program, engine: EngineSpec) -> None:
        self._program = program
        self._engine = engine
        self.sparse = SparseWeights(engine.sparse_products)

    def read(
        self,
        step: SegmentStep,
        payloads: Mapping[int, Payload],
        placed: Mapping[int, Payload],
    ) -> dict[str, torch.Tensor]:
        """Return the weights of a segment by name, as views of the payloads where that is possible.

        It is not where kernels take another type, and for weights that are not aligned: their bits
        must not depend on what lies before them in a bucket, so not on the number of servers.

        Args:
            step: The segment.
            payloads: Its weights as they came, by bucket: indexes are read from these.
            placed: The same where the device has placed them: values are read from these.
        """
        dtype, in_fp32 = self._program.stream_dtype, self._program.holds_fp32
        weights: dict[str, torch.Tensor] = {}
        for bucket in step.weights:
            payload = placed[bucket.index]
            packed = PackedWeights.read(bucket, payloads[bucket.index], self.sparse.indexes)
            self.sparse.note(bucket, packed)
            if packed is None:
                elements = read_stream(payload.view(CARRIED[dtype]), dtype, in_fp32=in_fp32)
                values = map(_aligned, unpack(elements, bucket.specs))
                weights.update(zip(bucket.names, values, strict=True))
            else:
                layer = self._program.segments[step.segment].layer
                setting = self._engine.sparse_products_of(layer)
                weights.update(self._unpacked(packed, payload, setting))
        return weights

    def _unpacked(
        self, packed: PackedWeights, payload: Payload, setting: SparseProducts
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the weights of a packed payload, with their zeros where no product is sparse."""
        dtype, in_fp32 = self._program.stream_dtype, self._program.holds_fp32
        for spec, index, elements in packed.parts(payload, CARRIED[dtype]):
            values = _aligned(read_stream(elements, dtype, in_fp32=in_fp32))
            pattern = self.sparse.patterns.get(spec.name)
            if pattern is not None and setting != "none":
                yield spec.name, PackedWeight(NonZeros(values, pattern), setting)
                continue
            yield spec.name, (values if index is None else index.unpack(values)).view(spec.shape)


def _aligned(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight, copied if it is not aligned."""
    return weight if is_aligned(weight) else weight.clone()
