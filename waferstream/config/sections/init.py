"""The sections of ``trainer.init`` and the data loaders of params.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from waferstream.config.sections.section import (
    NotYet,
    Section,
    StepCount,
    StepInterval,
    not_supported,
    one_or_many,
)
from waferstream.core.config import before, validate_part
from waferstream.core.errors import nearest
from waferstream.host.words import Words


class UserClass(Section):
    """A class or function of the user's, by import path; other keys are its arguments."""

    model_config = ConfigDict(extra="allow")

    class_path: str = Field(alias="class")


def _name_or_class(name: str | None, info: ValidationInfo) -> str | None:
    """Require the name of something registered, or a class of the user's, and not both."""
    class_path = info.data.get("class_path")
    if name is None and class_path is None:
        raise PydanticCustomError("missing", "Field required")
    if name is not None and class_path is not None:
        raise ValueError(f"{info.field_name} and class are mutually exclusive")
    return name


class ModelConfig(Section):
    """Section ``trainer.init.model``: a registered name, or a class of the user's.

    The registered model, or the signature of the class, says which other keys there are.
    """

    model_config = ConfigDict(extra="allow")

    class_path: str | None = Field(default=None, alias="class")
    """Import path: ``package.module:Name``."""
    name: Annotated[str | None, AfterValidator(_name_or_class)] = None

    @model_validator(mode="after")
    def _loss_is_a_class(self) -> Self:
        if self.class_path is not None and "loss" in (self.model_extra or {}):
            validate_part(UserClass, (self.model_extra or {})["loss"])
        return self

    def label(self, class_name: str) -> str:
        """Return the model in reports: its name, or ``class_name`` of a model of the user's."""
        return self.name or class_name


def _check_name(name: str) -> str:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    except ValueError:
        fields = []
    if fields != ["step"] or Path(name).name != name:
        raise ValueError("a file name with {step} in it once, and no other field or folder")
    return name


def _refuse_url(path: object) -> object:
    if "://" in str(path):
        raise not_supported("give a local file")
    return path


CheckpointPath = Annotated[Path, BeforeValidator(_refuse_url)]

StartFrom = CheckpointPath | Literal["newest"] | None
"""Checkpoint to start from: a file, the newest in ``model_dir``, or none (null)."""


class CheckpointConfig(Section):
    """Section ``trainer.init.checkpoint``: when checkpoints are written, how they are read."""

    steps: StepInterval | None = None
    """Interval in steps between checkpoints, plus one after the last step; null, 0: never."""
    autoload_last_checkpoint: bool = True
    """Start from the newest checkpoint in ``model_dir`` if none is named."""
    disable_strict_checkpoint_loading: bool = False
    """Allow missing and unexpected weights."""
    save_initial_checkpoint: bool = False
    """Write a checkpoint of the initial weights before the first step."""
    checkpoint_name: Annotated[str, AfterValidator(_check_name)] = "checkpoint_{step}.mdl"
    checkpoint_root: NotYet = None
    async_save: bool = False
    """Train on while the weight servers write a checkpoint."""
    strict_version: bool = True
    """Refuse a checkpoint of another major or minor version."""
    allow_changes: bool = False
    """Go on from a checkpoint of a run on another model or other data; a file of several phases
    always does."""
    export: bool | Literal["auto"] = "auto"
    """Write ``model.safetensors`` and ``config.json`` of transformers beside the last checkpoint of
    a training. ``auto``: where there is such a model, its weights take at most 2 GiB, and no more
    than the checkpoint."""
    grace_s: PositiveFloat = 20.0
    """Seconds from Ctrl-C or SIGTERM on for the current step to end and to be saved. Most
    schedulers kill after 30 s."""


def _null_is_never(value: object) -> object:
    return 0 if value is None else value


EvalFrequency = Annotated[
    StepInterval | Annotated[float, Field(gt=0, le=1)],
    before(
        _null_is_never,
        StepInterval | Annotated[float, Field(gt=0, le=1)] | None,
    ),
]


class LoopConfig(Section):
    """Section ``trainer.init.loop``: length of a run and interval of evaluations.

    ``num_steps`` counts from the start of the run and overrides ``max_steps``, which counts from
    step 0. ``num_epochs`` replaces ``num_steps``; an epoch has ``steps_per_epoch`` steps, or one
    pass over the data.
    """

    num_steps: StepCount | None = None
    """Steps to train, counted from the start of the run."""
    max_steps: StepCount | None = None
    """Step at which training ends, counted from the first step of the model."""
    num_epochs: PositiveInt | None = None
    """Epochs to train, in place of ``num_steps``."""
    steps_per_epoch: StepCount | None = None
    """Steps of an epoch; one pass over the data by default."""
    eval_frequency: EvalFrequency = 1.0
    """int: interval in steps. float: fraction of the run. 0: never."""
    eval_steps: StepCount | None = None
    """Batches per evaluation; null evaluates all data."""
    grad_accum_steps: PositiveInt = 1
    """Ignored: the cluster cuts the global batch into micro-batches itself."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.num_epochs is not None and self.num_steps is not None:
            raise ValueError("num_steps and num_epochs are mutually exclusive")
        if self.steps_per_epoch is not None and self.num_epochs is None:
            raise ValueError("steps_per_epoch requires num_epochs")
        return self


Role = Literal["crd", "wrk", "wgt", "act", "cmd", "br", "chf"]
"""Short names of the real cluster's tasks."""

ROLES: tuple[str, ...] = get_args(Role)

LevelName = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"]


def _upper(value: Any) -> Any:
    """Convert ``info`` to INFO and ``"20"`` to 20."""
    if not isinstance(value, str):
        return value
    return int(value) if value.isdecimal() else value.upper()


Level = Annotated[LevelName | int, before(_upper, LevelName | str | int)]


def levels_by_role(value: Any) -> Any:
    """Expand one level to all roles; keep a mapping ``role[.tag][.phase]: level``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(ROLES, value)
    for key in value:
        role = str(key).split(".")[0]
        if role not in ROLES:
            guess = nearest(role, ROLES)
            hint = f"; did you mean {guess!r}?" if guess else ""
            raise ValueError(f"no task is called {role!r}, known: {', '.join(ROLES)}{hint}")
    return value


class LoggingConfig(Section):
    """Section ``trainer.init.logging``."""

    log_steps: StepCount = 1
    """Interval in steps between progress lines."""
    log_level: Level = "INFO"
    """Log level of the user's process."""
    words: Words = "plain"
    """What the terminal shows: ``plain`` lines, those of the ``vendor``'s client, or, ``quiet``,
    warnings and the result alone."""
    wsc_log_level: Annotated[
        dict[str, Level],
        before(levels_by_role, LevelName | str | int | dict[str, Any] | None),
    ] = Field(default_factory=dict)
    """Log levels of the cluster's tasks, as ``task[.tag][.phase]``."""
    enable_act_frequency: bool = False
    """Fetch losses on log steps only; an emulated cluster always does."""

    @property
    def role_levels(self) -> dict[str, int | str]:
        """Level by task while it executes; parts of a task have no log of their own."""
        named = {key.removesuffix(".execute"): level for key, level in self.wsc_log_level.items()}
        return {task: level for task, level in named.items() if task in ROLES}


def _refuse_micro_batch(value: object) -> None:
    if value is not None:
        raise PydanticCustomError(
            "legacy_key",
            "this key belongs to the legacy layout",
            {
                "remedy": "under trainer.init.callbacks write ScopedTrainFlags:"
                f" {{csx.performance.micro_batch_size: {value}}}"
            },
        )


class DataLoaderConfig(Section):
    """Data loader: a registered data processor, or a class of the user's.

    The data processor, or the signature of the class, says which other keys there are.
    """

    model_config = ConfigDict(extra="allow")

    class_path: str | None = Field(default=None, alias="class")
    """Import path of what makes the loader: ``package.module:Name``."""
    data_processor: Annotated[str | None, AfterValidator(_name_or_class)] = None
    batch_size: PositiveInt
    """Samples per step over all systems (global batch)."""
    micro_batch_size: Annotated[None, BeforeValidator(_refuse_micro_batch)] = None


DataLoaders = Annotated[tuple[DataLoaderConfig, ...], one_or_many]
"""One data loader or a list."""
