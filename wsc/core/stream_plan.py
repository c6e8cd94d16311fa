"""The stream plan: which server owns which parameter, and the buckets that travel.

Each parameter is assigned to one weight server; the part of one segment's weights or gradients
that one server owns is a *bucket*, the unit that streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from wsc.core.program import BYTES_PER_ELEMENT, Program, TensorSpec

GRADIENT_DTYPE = "float32"  # gradients travel and are summed in fp32
GRADIENT_BYTES = BYTES_PER_ELEMENT[GRADIENT_DTYPE]


@dataclass(frozen=True)
class Bucket:
    """The parameters of one segment that one server owns: the contents of one slab.

    ``specs`` describes the tensors of the slab, one after the other, in the dtype that travels.
    ``index_bytes`` is what the indexes of sparse weights take; timing models alone state it.
    """

    index: int
    segment: int
    server: int
    specs: tuple[TensorSpec, ...]
    index_bytes: int = 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    @cached_property
    def num_elements(self) -> int:
        return sum(spec.num_elements for spec in self.specs)

    @cached_property
    def num_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.specs) + self.index_bytes


@dataclass(frozen=True)
class StreamPlan:
    """All weight buckets (in the order they stream) and gradient buckets of a program."""

    weights: tuple[Bucket, ...]
    gradients: tuple[Bucket, ...]


def assign_servers(parameters: Sequence[TensorSpec], num_servers: int) -> dict[str, int]:
    """Return the server of each parameter.

    The largest parameter is assigned first, each to the server with the fewest elements (ties: the
    lowest number).
    """
    load = [0] * num_servers
    owner = {}
    for spec in sorted(parameters, key=lambda spec: (-spec.num_elements, spec.name)):
        server = load.index(min(load))
        owner[spec.name] = server
        load[server] += spec.num_elements
    return owner


def plan_streams(program: Program, num_servers: int) -> StreamPlan:
    """Cut every segment's weights and gradients by owning server."""
    owner = assign_servers(program.parameters, num_servers)
    in_stream = _specs_in(program.stream_dtype, program)
    in_fp32 = _specs_in(GRADIENT_DTYPE, program)
    weights: list[Bucket] = []
    gradients: list[Bucket] = []
    for segment in program.segments:
        for server in range(num_servers):
            for names, buckets, specs in (
                (segment.weights, weights, in_stream),
                (segment.gradients, gradients, in_fp32),
            ):
                owned = tuple(specs[name] for name in names if owner[name] == server)
                if owned:
                    buckets.append(Bucket(len(buckets), segment.index, server, owned))
    return StreamPlan(tuple(weights), tuple(gradients))


def _specs_in(dtype: str, program: Program) -> dict[str, TensorSpec]:
    """Return every parameter in the dtype in which it travels."""
    return {spec.name: TensorSpec(spec.name, spec.shape, dtype) for spec in program.parameters}
