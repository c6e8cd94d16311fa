"""Sparse weights on the emulated machine: what streams, and which ops skip zeros.

A weight of *density* d streams and is stored as the share d of its elements that are not zero, with
their index (waferstream.core.sparsity.nonzero_bytes); its zeros trigger no work (Lie, Hot Chips 34,
2022: only non-zero weights are sent). In the backward pass each arriving weight triggers its own
gradient as well, so that masked ones are not computed, except where an update of the mask reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType

from waferstream.core.program.program import BYTES_PER_ELEMENT, Program, TensorSpec
from waferstream.core.program.segment import OpWork, Segment
from waferstream.core.program.stream_plan import Bucket, StreamPlan
from waferstream.core.sparsity.nonzero_bytes import expected_bytes

Densities = Mapping[str, float]
"""Share of the elements that are not zero, by weight; weights that are not there are dense."""

DENSE: Densities = MappingProxyType({})


@dataclass(frozen=True)
class StepSparsity:
    """The sparse weights of a step, or the mean of several steps.

    ``densities`` are those that the step finds. ``whole_gradients`` is the share of the steps in
    which all gradients of a weight travel, since an update of its mask reads them; ``mask_bytes``
    is what MemoryX moves to change the mask of a weight.
    """

    densities: Densities = field(default_factory=dict)
    whole_gradients: Mapping[str, float] = field(default_factory=dict)
    mask_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def gradient_densities(self) -> Densities:
        """Share of the gradients that travel, by weight."""
        whole = self.whole_gradients
        return {n: d + (1 - d) * whole.get(n, 0.0) for n, d in self.densities.items()}

    def mask_bytes_of(self, bucket: Bucket) -> int:
        """Return the bytes that MemoryX moves to change the masks of a bucket."""
        if not self.mask_bytes:
            return 0
        return sum(self.mask_bytes.get(name, 0) for name in bucket.names)


def sparse_plan(plan: StreamPlan, sparsity: StepSparsity) -> StreamPlan:
    """Return the streams of a program of which only non-zeros travel.

    The shape of a sparse weight becomes the number of its non-zeros.
    """
    weights, gradients = sparsity.densities, sparsity.gradient_densities
    if not weights:
        return plan
    return StreamPlan(
        tuple(_sparse(bucket, weights, has_index=True) for bucket in plan.weights),
        tuple(_sparse(bucket, gradients, has_index=False) for bucket in plan.gradients),
    )


def op_densities(
    segment: Segment, program: Program, densities: Densities, gradients: Densities | None = None
) -> tuple[float, ...]:
    """Return the density of what each op multiplies, or computes; empty if all of it is dense.

    An op does not name its weight. The weights of the segment with as many elements as the op
    multiplies count, on average: ``n`` products at densities ``d`` take about as long as at their
    mean. The same holds for products that compute gradients of weights which stream to this
    segment; without its weight, a gradient is dense.

    Args:
        segment: The segment.
        program: Its program.
        densities: Density of each sparse weight.
        gradients: Share of the gradients that leave, by weight; by default that of the weights.
    """
    if densities.keys().isdisjoint(segment.weights):
        return ()
    leaving = densities if gradients is None else gradients
    multiplied = _by_size(segment.weights, program, densities)
    with_index = [name for name in segment.weights if name in segment.gradients]
    trained = _by_size(with_index, program, leaving)
    found = (
        trained.get(_gradient_elements(op)) or multiplied.get(_streamed_elements(op), [1.0])
        for op in segment.work
    )
    return tuple(sum(each) / len(each) for each in found)


def _by_size(
    names: Iterable[str], program: Program, densities: Densities
) -> dict[int, list[float]]:
    """Return the densities of weights by their number of elements."""
    found: dict[int, list[float]] = {}
    for name in names:
        found.setdefault(program.parameter[name].num_elements, []).append(densities.get(name, 1.0))
    return found


def mean_density(segment: Segment, program: Program, densities: Densities) -> float:
    """Return the share of the weights that a segment streams, or else trains, that is not zero."""
    names = segment.weights or segment.gradients
    if densities.keys().isdisjoint(names):
        return 1.0
    sizes = {name: program.parameter[name].num_elements for name in names}
    kept = sum(size * densities.get(name, 1.0) for name, size in sizes.items())
    return kept / sum(sizes.values())


def multiplied_weights(program: Program) -> frozenset[str]:
    """Return the names of the weights that products multiply: those whose zeros skip work."""
    return frozenset(
        name
        for segment in program.segments
        for sizes in [{_streamed_elements(op) for op in segment.work}]
        for name in segment.weights
        if program.parameter[name].num_elements in sizes
    )


def _streamed_elements(op: OpWork) -> int:
    """Return the elements of the weight that an op multiplies; 0 if none streams into it."""
    if not op.streams or op.kind not in ("matmul", "convolution"):  # a norm streams a vector
        return 0
    if op.kind == "convolution":
        return prod(op.shape[1:])
    batch, _, inner, columns = op.shape
    return inner * columns * (batch if op.op == "_grouped_mm" else 1)


def _gradient_elements(op: OpWork) -> int:
    """Return the elements of the weight whose gradient a product computes; 0 for other ops."""
    if op.streams or op.kind != "matmul" or op.op == "bmm" or op.shape[0] != 1:
        return 0
    return op.shape[1] * op.shape[3]


def _sparse(bucket: Bucket, densities: Densities, *, has_index: bool) -> Bucket:
    if densities.keys().isdisjoint(bucket.names):
        return bucket
    specs, index_bytes = [], 0
    for spec in bucket.specs:
        kept, index = _non_zeros(spec, densities.get(spec.name, 1.0))
        specs.append(kept)
        index_bytes += index
    return replace(bucket, specs=tuple(specs), index_bytes=index_bytes if has_index else 0)


def _non_zeros(spec: TensorSpec, density: float) -> tuple[TensorSpec, int]:
    """Return a weight as it travels, and the bytes of its index."""
    element_bytes = BYTES_PER_ELEMENT[spec.dtype]
    num_bytes = expected_bytes(spec.num_elements, density, element_bytes)
    if num_bytes == spec.num_bytes:
        return spec, 0
    kept = replace(spec, shape=(round(spec.num_elements * density),))
    return kept, num_bytes - kept.num_bytes
