"""The stream plan: which server owns which parameter, and the buckets that travel.

Each parameter is assigned to one weight server; the part of one segment's weights or gradients
that one server owns is a *bucket*, the unit that streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from waferstream.core.program.program import BYTES_PER_ELEMENT, Program, TensorSpec

GRADIENT_DTYPE = "float32"  # gradients travel and are summed in fp32
GRADIENT_BYTES = BYTES_PER_ELEMENT[GRADIENT_DTYPE]


@dataclass(frozen=True)
class Bucket:
    """The parameters of one segment that one server owns: the contents of one slab.

    ``specs`` describes the tensors of the slab, one after the other, in the dtype that travels.
    ``index_bytes`` is what the indexes of sparse weights take; timing models alone state it.
    ``averages`` are the parameters that change with those of a gradient bucket: their moving
    averages. On the emulated machine it travels ``passes`` times in a round: once for each block of
    its segment.
    """

    index: int
    segment: int
    server: int
    specs: tuple[TensorSpec, ...]
    index_bytes: int = 0
    averages: tuple[str, ...] = ()
    passes: int = 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The parameters that an update with the gradients of this bucket changes."""
        return self.names + self.averages

    @cached_property
    def num_elements(self) -> int:
        return sum(spec.num_elements for spec in self.specs)

    @cached_property
    def num_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.specs) + self.index_bytes

    @property
    def moved_elements(self) -> int:
        """Elements that travel in a round on the emulated machine."""
        return self.passes * self.num_elements

    @property
    def moved_bytes(self) -> int:
        """Bytes that travel in a round on the emulated machine."""
        return self.passes * self.num_bytes


@dataclass(frozen=True)
class StreamPlan:
    """All weight buckets (in the order they stream) and gradient buckets of a program."""

    weights: tuple[Bucket, ...]
    gradients: tuple[Bucket, ...]


def assign_servers(parameters: Sequence[TensorSpec], num_servers: int) -> dict[str, int]:
    """Return the server of each parameter.

    The largest parameter is assigned first, each to the server with the fewest elements (ties: the
    lowest number). A moving average goes where its source is.
    """
    load = [0] * num_servers
    owner = {}
    averages = averages_of(parameters)
    leading = [spec for spec in parameters if not spec.average_of]
    for spec in sorted(leading, key=lambda spec: (-spec.num_elements, spec.name)):
        server = load.index(min(load))
        together = (spec.name, *averages.get(spec.name, ()))
        owner.update(dict.fromkeys(together, server))
        load[server] += spec.num_elements * len(together)
    return owner


def averages_of(parameters: Sequence[TensorSpec]) -> dict[str, tuple[str, ...]]:
    """Return the moving averages of each parameter that has some."""
    found: dict[str, tuple[str, ...]] = {}
    for spec in parameters:
        if spec.average_of:
            found[spec.average_of] = (*found.get(spec.average_of, ()), spec.name)
    return found


def plan_streams(program: Program, num_servers: int) -> StreamPlan:
    """Cut every segment's weights and gradients by owning server."""
    owner = assign_servers(program.parameters, num_servers)
    averages = averages_of(program.parameters)
    in_stream = _specs_in(program.stream_dtype, program)
    in_fp32 = _specs_in(GRADIENT_DTYPE, program)
    weights: list[Bucket] = []
    gradients: list[Bucket] = []
    for segment in program.segments:
        for server in range(num_servers):
            owned = tuple(in_stream[name] for name in segment.weights if owner[name] == server)
            if owned:
                place, passes = len(weights), segment.blocks
                weights.append(Bucket(place, segment.index, server, owned, passes=passes))
            owned = tuple(in_fp32[name] for name in segment.gradients if owner[name] == server)
            if owned:
                after = tuple(name for spec in owned for name in averages.get(spec.name, ()))
                place, passes = len(gradients), segment.blocks
                gradients.append(
                    Bucket(place, segment.index, server, owned, averages=after, passes=passes)
                )
    return StreamPlan(tuple(weights), tuple(gradients))


def _specs_in(dtype: str, program: Program) -> dict[str, TensorSpec]:
    """Return every parameter in the dtype in which it travels."""
    return {spec.name: TensorSpec(spec.name, spec.shape, dtype) for spec in program.parameters}
