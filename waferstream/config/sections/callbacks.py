"""Configuration of ``trainer.init.callbacks`` and ``loggers``: ``[{Name: {arguments}}]``.

Default callbacks are always added; ``{Name: null}`` removes one. The validated list holds the
callbacks that run; writing it back states the removed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PositiveInt,
    Tag,
)
from pydantic.json_schema import SkipJsonSchema

from waferstream.config.sections.flags import GlobalFlags, ScopedTrainFlags, ScopedValidateFlags
from waferstream.config.sections.lora import LoraConfig
from waferstream.config.sections.plugins import CallbackPlugin, LoggerPlugin, tag_of
from waferstream.config.sections.section import Named, Section, class_name, one_or_many
from waferstream.core.config import Config, before

StateName = Literal[
    "model",
    "optimizer",
    "dataloader",
    "lr_scheduler",
    "schedulers",
    "grad_scaler",
    "sparsity",
    "global_step",
]


def _split(value: Any) -> Any:
    """Split ``model,optimizer`` into a list; keep ``all``."""
    if not isinstance(value, str) or value == "all":
        return value
    return [name.strip() for name in value.split(",")]


class CheckLoss(Named):
    """Stop the run when the loss is NaN or infinite."""


class ComputeNorm(Named):
    """Log the norms of weights and gradients, of every parameter and of all together.

    The global gradient norm before clipping is always logged where gradients are clipped by norm.
    """


class NaNChecker(Named):
    """Examine weights, activations and gradients, and stop at the first that is not finite.

    The error names step, layer, tensor, micro-batch and system.
    """

    num_steps: PositiveInt | None = None
    """Steps of the run to examine, all if null: it makes steps slower."""


class NotFiniteSteps(Named):
    """What to do about a step with a gradient that is NaN or infinite.

    With a dynamic loss scale such steps are skipped anyway, and the scale falls.
    """

    action: Literal["stop", "skip", "roll_back"] = "stop"
    """``stop`` ends the run at the first loss that is not finite. ``skip`` leaves out the update of
    the step, on all weight servers alike. ``roll_back`` returns to the newest checkpoint of the
    run, also from a loss that is not finite, and leaves out the batch."""

    max_times: PositiveInt = 10
    """The most steps of a run that are skipped or rolled back; one more ends the run."""


class _Listener(Named):
    """Base of listeners: the tensors ``<module>.fwd`` and ``<module>.bwd`` that globs name."""

    listener_name: str
    tensor_names: Annotated[tuple[str, ...], one_or_many]


class NormTensorListener(_Listener):
    """Log the norms of activations and of the gradients with respect to them."""


class SummaryTensorListener(_Listener):
    """Log mean, standard deviation, minimum and maximum of activations and their gradients."""


class DumpActivations(Named):
    """Write what every module returns, at log steps, to .npz files of ``buffer_steps`` steps."""

    outdir: Path | None = None
    """Folder of the files; by default ``act_dumps`` in that of the model."""
    buffer_steps: PositiveInt | None = None


class DumpAvailableTensorNames(Named):
    """Write the names of all tensors that listeners can hear to a file of the executor's folder.

    Each with shape, of one micro-batch, and dtype.
    """


class LogInputSummaries(Named):
    """Write the batches of training at log steps to ``cs_events/input`` of the run's folder."""


class LogSparsity(Named):
    """Log the share of zeros of every sparse weight, asked for and actual, at activation steps."""


class KeepNCheckpoints(Named):
    """Delete all but the newest ``n`` checkpoints of the run."""

    n: PositiveInt | None = None


class LoadCheckpointStates(Named):
    """States to restore from a checkpoint; ``model`` alone loads weights and starts at step 0."""

    load_checkpoint_states: Annotated[
        Literal["all"] | tuple[StateName, ...],
        before(_split, str | tuple[StateName, ...]),
    ] = "all"


class DebugArgsPath(Named):
    """File of debug settings; they configure the vendor's servers and have no effect here."""

    debug_args_path: Path


class SkipSamples(Named):
    """Begin the training data after ``n`` samples, unless a checkpoint says where it goes on."""

    n: PositiveInt


class Lora(Named):
    """Train small matrices beside frozen weights (``waferstream.training.setup.model``)."""

    lora_params: Annotated[tuple[LoraConfig, ...], one_or_many, Field(min_length=1)]


class SelectiveGradConfig(Config):
    """Parameters of which some elements are trained (``cstorch.sparse.selective_grad``)."""

    param_filter: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Globs of their names; those that would be sparse by default if null."""
    init_method: Literal["outlier"] = "outlier"
    """The elements: those far larger than the others of their channel."""


class SelectiveGrad(Named):
    """Train some elements of parameters, and keep the others."""

    selective_grads: Annotated[tuple[SelectiveGradConfig, ...], one_or_many, Field(min_length=1)]
    """Parameters, and the elements of each that are trained."""


class UserCallback(Section):
    """A callback of the user's, by import path; other keys are its arguments."""

    model_config = ConfigDict(extra="allow")

    class_path: str = Field(alias="class")


class ProgressLogger(Named):
    """Progress line on the terminal and in run.log."""


class TensorBoardLogger(Named):
    """Event files for TensorBoard."""

    summary_dir: Path | None = None
    run_name: str | None = None
    """Folder of the event files below ``summary_dir``, by which TensorBoard calls the run; the
    dated folder of the run by default."""
    legacy_event_dirs: bool = False


_USER = "class"

_DEFAULT_CALLBACKS = ("CheckLoss", "DumpAvailableTensorNames")
_DEFAULT_LOGGERS = ("ProgressLogger", "TensorBoardLogger")

_VENDOR_DEFAULTS = frozenset(
    {
        "ComputeNorm",
        "DurationProfiler",
        "FlopUtilization",
        "LogOptimizerParamGroup",
        "ModelEvalMetrics",
        "ModelZooParamsMetadata",
        "RateProfiler",
        "SamplesStreamedInfo",
        "SavePerformanceData",
        "TelemetryLogger",
    }
)
"""Further default callbacks of the vendor: removing one has no effect here."""

REMOVABLE_CALLBACKS = frozenset({*_DEFAULT_CALLBACKS, *_DEFAULT_LOGGERS, *_VENDOR_DEFAULTS})
"""Callbacks and loggers of which ``{Name: null}`` may be an entry."""


def _with_defaults(defaults: Iterable[str]) -> BeforeValidator:
    def complete(entries: Any) -> Any:
        if not isinstance(entries, list | tuple):
            return entries
        names = [_name_of(entry) for entry in entries]
        for name in names:
            if name is not None and names.count(name) > 1:
                raise ValueError(f"{name} must not be listed twice")
        removable = {*defaults, *_VENDOR_DEFAULTS}
        kept = [
            entry
            for entry, name in zip(entries, names, strict=True)
            if not (isinstance(entry, dict) and name in removable and entry[name] is None)
        ]
        return kept + [{name: {}} for name in defaults if name not in names]

    return BeforeValidator(complete)


def _name_of(entry: object) -> str | None:
    """Return the name of an entry that may be listed once; None for one of the user's."""
    return None if _is_of_user(entry) else class_name(entry)


def _is_of_user(value: object) -> bool:
    return isinstance(value, UserCallback) or (isinstance(value, Mapping) and _USER in value)


def _kind_of(value: object) -> str | None:
    """Return the class name of an entry, or the key of those of the user's."""
    return _USER if _is_of_user(value) else tag_of(value, CallbackConfig, CallbackPlugin)


def _kind_of_logger(value: object) -> str | None:
    return tag_of(value, LoggerConfig, LoggerPlugin)


def _with_removals(defaults: Iterable[str]) -> PlainSerializer:
    def write(entries: tuple[Section, ...]) -> list[dict[str, Any]]:
        names = {_name_of(entry) for entry in entries}
        removed = [{name: None} for name in defaults if name not in names]
        return [entry.model_dump(mode="json") for entry in entries] + removed

    return PlainSerializer(write)


CallbackConfig = Annotated[
    Annotated[CheckLoss, Tag("CheckLoss")]
    | Annotated[ComputeNorm, Tag("ComputeNorm")]
    | Annotated[NaNChecker, Tag("NaNChecker")]
    | Annotated[NotFiniteSteps, Tag("NotFiniteSteps")]
    | Annotated[NormTensorListener, Tag("NormTensorListener")]
    | Annotated[SummaryTensorListener, Tag("SummaryTensorListener")]
    | Annotated[DumpActivations, Tag("DumpActivations")]
    | Annotated[DumpAvailableTensorNames, Tag("DumpAvailableTensorNames")]
    | Annotated[LogInputSummaries, Tag("LogInputSummaries")]
    | Annotated[LogSparsity, Tag("LogSparsity")]
    | Annotated[KeepNCheckpoints, Tag("KeepNCheckpoints")]
    | Annotated[LoadCheckpointStates, Tag("LoadCheckpointStates")]
    | Annotated[SkipSamples, Tag("SkipSamples")]
    | Annotated[Lora, Tag("Lora")]
    | Annotated[SelectiveGrad, Tag("SelectiveGrad")]
    | Annotated[UserCallback, Tag(_USER)]
    | Annotated[DebugArgsPath, Tag("DebugArgsPath")]
    | Annotated[GlobalFlags, Tag("GlobalFlags")]
    | Annotated[ScopedTrainFlags, Tag("ScopedTrainFlags")]
    | Annotated[ScopedValidateFlags, Tag("ScopedValidateFlags")]
    | Annotated[SkipJsonSchema[CallbackPlugin], Tag("CallbackPlugin")],
    Discriminator(_kind_of),
]

LoggerConfig = Annotated[
    Annotated[ProgressLogger, Tag("ProgressLogger")]
    | Annotated[TensorBoardLogger, Tag("TensorBoardLogger")]
    | Annotated[SkipJsonSchema[LoggerPlugin], Tag("LoggerPlugin")],
    Discriminator(_kind_of_logger),
]

Callbacks = Annotated[
    tuple[CallbackConfig, ...],
    _with_defaults(_DEFAULT_CALLBACKS),
    _with_removals(_DEFAULT_CALLBACKS),
    one_or_many,
]

Loggers = Annotated[
    tuple[LoggerConfig, ...],
    _with_defaults(_DEFAULT_LOGGERS),
    _with_removals(_DEFAULT_LOGGERS),
    one_or_many,
]
