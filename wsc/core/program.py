"""Programs as data: parameters, segments, and the buckets that stream between roles.

A *program* is one captured step (training or evaluation) cut into *segments*: runs of ops of one
layer, forward or backward, in execution order. A segment names the weights that must be streamed
to it and the gradients that leave it. Each parameter is assigned to one weight server; the part of
one segment's weights or gradients that one server owns is a *bucket*, the unit that streams.

Everything here is plain data without torch, so the coordinator and the timing models need no
tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

from wsc.core.label_means import LabelMean
from wsc.core.micro_batches import Cut

Mode = Literal["train", "eval"]
Phase = Literal["forward", "backward"]
Rounding = Literal["nearest", "stochastic"]
"""How results of ops are rounded to the half type (wsc.compiler.half_types)."""

BYTES_PER_ELEMENT = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "cbfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
MASTER_BYTES = 4  # masters are fp32, in messages, in MemoryX and on disk
ARITHMETIC_KINDS = frozenset({"matmul", "convolution", "attention"})
"""Op kinds whose operations count as the model's arithmetic."""
GRADIENT_DTYPE = "float32"  # gradients travel and are summed in fp32
GRADIENT_BYTES = BYTES_PER_ELEMENT[GRADIENT_DTYPE]


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (``"float32"``, ``"bfloat16"``, ``"int64"``, ...) of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @cached_property
    def num_elements(self) -> int:
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * BYTES_PER_ELEMENT[self.dtype]


class OpWork(NamedTuple):
    """The work of one op, as far as the timing models need it: kind and size.

    ``kind`` is an op kind of wsc.compiler.ops ("matmul", "elementwise", "view", ...);
    ``flops`` counts multiply and add as two. ``shape`` is the loop nest of the kernel,
    outermost first:

        matmul       (batch, rows, inner, columns): rows x inner times inner x columns
        convolution  (positions, patch, channels): positions x patch times patch x channels
        attention    (batch x heads, queries, keys, head size)
        window       the windows that the kernel reads, side by side
        others       the shape of the (first) result; of reductions, norms, softmax and losses that
                     of the first operand, which is a scalar where a loss passes its gradient back

    ``streams`` says that an operand is a weight which triggers the work as it arrives, ``reruns``
    that recomputing the op's layer runs it a second time.

    There is no dtype: all ops are costed in the dtype of the stream, for the reason given in
    timing.cost.
    """

    op: str
    kind: str
    flops: int
    shape: tuple[int, ...] = ()
    streams: bool = False
    reruns: bool = False


@dataclass(frozen=True)
class Footprint:
    """SRAM of a micro-batch: a fixed number of bytes, and bytes for each of its samples."""

    fixed_bytes: int = 0
    sample_bytes: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.fixed_bytes + other.fixed_bytes, self.sample_bytes + other.sample_bytes
        )

    def __sub__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.fixed_bytes - other.fixed_bytes, self.sample_bytes - other.sample_bytes
        )

    def covering(self, other: Footprint) -> Footprint:
        """Return the smallest footprint that covers both."""
        return Footprint(
            max(self.fixed_bytes, other.fixed_bytes), max(self.sample_bytes, other.sample_bytes)
        )

    def of(self, samples: int) -> int:
        """Return the bytes of a micro-batch of ``samples`` samples."""
        return self.fixed_bytes + samples * self.sample_bytes


@dataclass(frozen=True)
class Stash:
    """One piece of memory that a segment keeps for later ones; ``values`` are all views of it."""

    values: tuple[str, ...]
    footprint: Footprint


@dataclass(frozen=True)
class Segment:
    """A run of ops of one layer in one direction, with its inputs, stash and outputs.

    ``inputs`` are values of the batch or of earlier segments, ``outputs`` the values that later
    segments read, ``drops`` the values no later segment reads. ``results`` are positions in the
    step's outputs (the loss first) paired with the value that holds them.

    ``stash`` is the memory behind those ``outputs`` that the segment makes, each piece once;
    ``working`` is an upper bound of the memory that its values, outputs included, take at any time.
    Gradients are not part of ``working``: like weights, they stream.
    """

    index: int
    phase: Phase
    layer: str
    weights: tuple[str, ...]
    gradients: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    drops: tuple[str, ...]
    results: tuple[tuple[int, str], ...]
    work: tuple[OpWork, ...]
    stash: tuple[Stash, ...] = ()
    working: Footprint = Footprint()

    @property
    def stash_footprint(self) -> Footprint:
        """SRAM of all pieces of the stash together."""
        return sum((piece.footprint for piece in self.stash), Footprint())


@dataclass(frozen=True)
class TensorResult:
    """A result of a step that is no scalar.

    ``samples``: its first dimension is the samples of the micro-batch; ``mean``: any other.
    """

    position: int
    rule: Literal["samples", "mean"]


@dataclass(frozen=True)
class StepState:
    """The buffers of the model that a step reads or writes; the coordinator holds them.

    ``reads`` are inputs of the kernels. Micro-batches return ``contributions`` behind the results
    of the step; with those of one micro-batch after the other, and the buffers
    ``arguments``, the update kernel computes the new values of ``writes`` and the step's results
    at the positions ``results``.
    """

    reads: tuple[TensorSpec, ...] = ()
    writes: tuple[TensorSpec, ...] = ()
    arguments: tuple[str, ...] = ()
    contributions: tuple[TensorSpec, ...] = ()
    results: tuple[int, ...] = ()


@dataclass(frozen=True)
class NormInput:
    """The L2 norm, or its square, of a whole parameter or of its gradient.

    Of a gradient it is that of the batch, unscaled and not clipped; of a weight that of the master
    before the update.
    """

    of: Literal["weight", "gradient"]
    parameter: str
    is_squared: bool = False


@dataclass(frozen=True)
class NormResults:
    """The results of a step, by position, that a kernel of the coordinator computes from norms."""

    inputs: tuple[NormInput, ...] = ()
    results: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """One captured step, for one micro-batch, the same for every node and every ``num_csx``."""

    mode: Mode
    digest: str  # hash of graph, shapes, precision and version; names the compile artifact
    parameters: tuple[TensorSpec, ...]  # master order = the model's registration order, fp32
    stream_dtype: str
    inputs: tuple[TensorSpec, ...]  # of one micro-batch
    num_results: int
    segments: tuple[Segment, ...]
    micro_batch_size: int
    num_micro_batches: int
    label_means: tuple[LabelMean, ...] = ()
    tensor_results: tuple[TensorResult, ...] = ()
    state: StepState = StepState()
    num_short: int = 0  # micro-batches at the end that have one sample less
    totals: tuple[int, ...] = ()  # positions of results that are sums over samples, not means
    norms: NormResults = NormResults()
    rounding: Rounding = "nearest"

    @property
    def holds_fp32(self) -> bool:
        """Whether kernels hold the half type in fp32 and round results themselves."""
        return self.stream_dtype == "cbfloat16" or self.rounding == "stochastic"

    @property
    def batch_size(self) -> int:
        return self.micro_batch_size * self.num_micro_batches - self.num_short

    @property
    def cut(self) -> Cut:
        """The global batch in micro-batches."""
        return Cut(self.batch_size, self.num_micro_batches)

    def is_short(self, micro_batch: int) -> bool:
        """Return whether a micro-batch has one sample less than the first."""
        return micro_batch >= self.num_micro_batches - self.num_short

    def rows_of(self, micro_batch: int) -> slice:
        """Return the rows of the global batch that are a micro-batch."""
        size, num_full = self.micro_batch_size, self.num_micro_batches - self.num_short
        first = size * micro_batch - max(0, micro_batch - num_full)
        return slice(first, first + size - self.is_short(micro_batch))

    def inputs_of(self, micro_batch: int) -> tuple[TensorSpec, ...]:
        """Return the inputs of one micro-batch."""
        return self._short_inputs if self.is_short(micro_batch) else self.inputs

    @cached_property
    def _short_inputs(self) -> tuple[TensorSpec, ...]:
        samples = self.micro_batch_size - 1
        return tuple(TensorSpec(i.name, (samples, *i.shape[1:]), i.dtype) for i in self.inputs)

    def weights_of(self, result: int) -> tuple[float, ...]:
        """Return the weight of each micro-batch in a result that is no mean over labels."""
        return (1.0,) * self.num_micro_batches if result in self.totals else self.sample_weights

    @cached_property
    def sample_weights(self) -> tuple[float, ...]:
        """Weight of each micro-batch in a mean over samples; 1.0 if all have equally many."""
        rows = map(self.rows_of, range(self.num_micro_batches))
        count, total = self.num_micro_batches, self.batch_size
        return tuple((row.stop - row.start) * count / total for row in rows)

    @cached_property
    def parameter(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.parameters}

    def num_elements(self, names: Iterable[str]) -> int:
        """Return the number of elements of these parameters together."""
        return sum(self.parameter[name].num_elements for name in names)

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """Names that receive a gradient, in master order."""
        with_gradient = {name for segment in self.segments for name in segment.gradients}
        return tuple(spec.name for spec in self.parameters if spec.name in with_gradient)


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
