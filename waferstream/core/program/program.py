"""Programs as data: parameters, segments, inputs and results.

A *program* is one captured step (training or evaluation) cut into *segments*: runs of ops of one
layer, forward or backward, in execution order. A segment names the weights that must be streamed
to it and the gradients that leave it.

Everything here is plain data without torch, so the coordinator and the timing models need no
tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from waferstream.core.program.label_means import LabelMean
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.segment import Segment


class ProgramKind(StrEnum):
    """What the steps of a program are for; as text, the word of files, logs and users."""

    TRAIN = "train"
    EVAL = "eval"

    @property
    def updates(self) -> bool:
        """Whether a step ends with an update of the weights.

        Such steps are counted since the beginning of the training, others in each loop.
        """
        return self is ProgramKind.TRAIN

    @property
    def verb(self) -> str:
        """What a cluster does with the steps."""
        return {ProgramKind.TRAIN: "train", ProgramKind.EVAL: "evaluate"}[self]


Rounding = Literal["nearest", "stochastic"]
"""How results of ops are rounded to the half type (waferstream.numerics.half_types)."""

BYTES_PER_ELEMENT = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "cbfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
MASTER_BYTES = 4  # masters are fp32, in messages, in MemoryX and on disk


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (``"float32"``, ``"bfloat16"``, ``"int64"``, ...) of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    average_of: str = ""
    """The parameter whose moving average a parameter is, if any
    (waferstream.core.optimizer)."""

    @cached_property
    def num_elements(self) -> int:
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * BYTES_PER_ELEMENT[self.dtype]


@dataclass(frozen=True)
class TensorResult:
    """A result of a step that is no scalar.

    ``samples``: its first dimension is the samples of the micro-batch; ``mean``: any other.
    """

    position: int
    rule: Literal["samples", "mean"]


@dataclass(frozen=True)
class StepMeanSpec:
    """The buffers and the momentum of a ``StepMean`` (waferstream.compiler.results.step_means)."""

    value: str
    total: str
    weight: str
    num_steps: str
    momentum: float

    @property
    def kept(self) -> tuple[str, str]:
        """The buffers that change at the end of a step only."""
        return self.value, self.num_steps


@dataclass(frozen=True)
class StepState:
    """The buffers of the model that a step reads or writes; the coordinator holds them.

    ``reads`` are inputs of the kernels. Micro-batches return ``contributions`` behind the results
    of the step; with those of one micro-batch after the other, and the buffers
    ``arguments``, the update kernel computes the new values of ``writes`` and the step's results
    at the positions ``results``. When the step is done, its ``means`` advance.
    """

    reads: tuple[TensorSpec, ...] = ()
    writes: tuple[TensorSpec, ...] = ()
    arguments: tuple[str, ...] = ()
    contributions: tuple[TensorSpec, ...] = ()
    results: tuple[int, ...] = ()
    means: tuple[StepMeanSpec, ...] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the buffers that a step changes."""
        kept = (name for mean in self.means for name in mean.kept)
        return (*(spec.name for spec in self.writes), *kept)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the buffers that a step reads or changes."""
        return tuple(dict.fromkeys([*(spec.name for spec in self.reads), *self.changed]))


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
class StepInput:
    """An input of the kernels that has a value of its own in each step: a number, or a tensor.

    It comes from state in Python. The coordinator holds it, a number as a scalar tensor.
    """

    name: str
    is_number: bool


@dataclass(frozen=True)
class Program:
    """One captured step, for one micro-batch, the same for every node and every ``num_csx``."""

    __pydantic_config__ = ConfigDict(serialize_by_alias=True)

    kind: Annotated[ProgramKind, Field(alias="mode")]  # files have the name of releases before
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
    num_cut: int = 0  # of the last inputs, which are cut from values of the whole batch
    whole: tuple[TensorSpec, ...] = ()  # further inputs: values of the whole batch as they are
    guards: tuple[str, ...] = ()  # ops that keep a loss within limits, with their lines
    norms: NormResults = NormResults()
    rounding: Rounding = "nearest"
    gradient_dtype: str = "float32"  # of one micro-batch, as kernels return it
    step_inputs: tuple[StepInput, ...] = ()
    batch_draws: tuple[int, ...] = ()  # random ops, counted, that draw for all samples

    @property
    def tokens_per_sample(self) -> int | None:
        """Length of ``input_ids``, or of the rows of a batch of integers; else None."""
        of_batch = self.inputs[: len(self.inputs) - self.num_cut]
        tokens = [spec for spec in of_batch if spec.name == "input_ids"] or of_batch
        shapes = {spec.shape for spec in tokens}
        has_others = any("float" in spec.dtype or len(spec.shape) != 2 for spec in tokens)
        return None if has_others or len(shapes) != 1 else shapes.pop()[1]

    @property
    def holds_fp32(self) -> bool:
        """Whether kernels hold the half type in fp32 and round results themselves."""
        return self.stream_dtype == "cbfloat16" or self.rounding == "stochastic"

    @property
    def widening(self) -> int:
        """Host bytes of an activation for each byte on a wafer: kernels may hold halves in fp32."""
        is_fp32 = self.holds_fp32 or self.gradient_dtype == "float32"
        return MASTER_BYTES // BYTES_PER_ELEMENT[self.stream_dtype] if is_fp32 else 1

    def dtype_of_sum(self, num_micro_batches: int) -> str:
        """Return the dtype in which the gradient of so many micro-batches travels: sums are fp32.

        That of a single one travels as its kernels return it. Every value of a half type is one of
        fp32, so sums have the same bits, and nothing is cast before it is added.
        """
        return self.gradient_dtype if num_micro_batches == 1 else "float32"

    @property
    def guarded(self) -> range:
        """Positions of the losses that ``guards`` keep within limits, behind all other results."""
        first = self.num_results + len(self.state.contributions)
        return range(first, first + len(self.guards))

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
        own = self._short_inputs if self.is_short(micro_batch) else self.inputs
        return (*own, *self.whole) if self.whole else own

    @cached_property
    def _short_inputs(self) -> tuple[TensorSpec, ...]:
        size = self.micro_batch_size  # an input may have several rows for each sample
        rows = ((i, i.shape[0] // size * (size - 1)) for i in self.inputs)
        return tuple(TensorSpec(i.name, (count, *i.shape[1:]), i.dtype) for i, count in rows)

    def weights_of(self, result: int) -> tuple[float, ...]:
        """Return the weight of each micro-batch in a result that is no mean over labels."""
        if result in self.totals:  # results are means over the micro-batches
            return (float(self.num_micro_batches),) * self.num_micro_batches
        return self.sample_weights

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


LoaderKind = Literal["hdf5", "csv", "npz", "jpeg", "other"]


@dataclass(frozen=True)
class Loading:
    """Describe the processes and files that load a job's samples.

    The keys and the meaning of zero are those of the vendor's data loader configuration.
    """

    kind: LoaderKind = "other"
    num_workers: int = 0
    """Loader processes of one input worker; 0 loads in the worker itself."""
    num_workers_per_csx: int = 0
    """Input workers of one system; 0 takes the machine's number."""
    num_files: int = 1
    """Files that hold the samples."""


UNKNOWN_LOADING = Loading()
"""The loading of a data loader that states nothing."""
