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
    model_validator,
)
from pydantic_core import PydanticCustomError

from waferstream.config.section import (
    NotYet,
    Section,
    StepCount,
    StepInterval,
    not_supported,
    not_yet,
    one_or_many,
)
from wsc.core.errors import nearest


class ModelConfig(Section):
    """Which model, with keys that its class validates; ``dump`` gives them all."""

    model_config = ConfigDict(extra="allow")

    name: str


HalfType = Literal["bfloat16", "float16"]
FloatType = Literal["float32", "bfloat16", "float16"]


class PrecisionConfig(Section):
    """Mixed precision over fp32 masters (cluster_interface.md, sections 2.2 and 3.7).

    ============================  =============  =============
    setting                       weights travel kernels compute
    ============================  =============  =============
    ``enabled: False``            float32        float32
    ``precision_opt_level: 0``    ``fp16_type``  float32
    ``precision_opt_level: 1``    ``fp16_type``  ``fp16_type``
    ``precision_opt_level: 2``    ``fp16_type``  ``fp16_type``
    ============================  =============  =============
    """

    enabled: bool = True
    fp16_type: Annotated[
        HalfType, not_yet("cbfloat16", remedy="bfloat16 has the same size and needs no loss scale")
    ] = "bfloat16"
    precision_opt_level: Literal[0, 1, 2] = 1
    loss_scaling_factor: Annotated[
        PositiveFloat, not_yet("dynamic", remedy="give a number; bfloat16 needs no other than 1.0")
    ] = 1.0
    """The loss is multiplied by this before the backward pass, the gradients divided after it."""
    initial_loss_scale: NotYet = None
    steps_per_increase: NotYet = None
    min_loss_scale: NotYet = None
    max_loss_scale: NotYet = None
    max_gradient_norm: PositiveFloat | None = None
    """Gradients are scaled down to this global L2 norm."""
    max_gradient_value: PositiveFloat | None = None
    """Gradients are clipped to this absolute value."""
    log_loss_scale: bool = False
    """Log the loss scale; a fixed one stands in the configuration."""

    @property
    def stream_dtype(self) -> FloatType:
        """The type in which weights leave the weight store."""
        return self.fp16_type if self.enabled else "float32"

    @property
    def compute_dtype(self) -> FloatType:
        """The type in which kernels compute."""
        return self.fp16_type if self.enabled and self.precision_opt_level > 0 else "float32"


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
"""A checkpoint to start from: a file, the newest in ``model_dir``, or (null) none at all."""


class CheckpointConfig(Section):
    """When checkpoints are written and how they are read (cluster_interface.md, section 2.2)."""

    steps: StepInterval | None = None
    """Write every so many steps and after the last one; None and 0 mean never."""
    autoload_last_checkpoint: bool = True
    """Start from the newest checkpoint in ``model_dir`` when none is named."""
    disable_strict_checkpoint_loading: bool = False
    """Allow weights that are missing or not expected."""
    save_initial_checkpoint: bool = False
    """Write the initial weights before the first step of a run that starts from none."""
    checkpoint_name: Annotated[str, AfterValidator(_check_name)] = "checkpoint_{step}.mdl"
    checkpoint_root: NotYet = None
    strict_version: bool = True
    """Refuse a checkpoint of another major or minor version."""


def _null_is_never(value: object) -> object:
    return 0 if value is None else value


EvalFrequency = Annotated[
    StepInterval | Annotated[float, Field(gt=0, le=1)], BeforeValidator(_null_is_never)
]


class LoopConfig(Section):
    """The length of a run (cluster_interface.md, section 2.2).

    ``num_steps`` counts from where the run starts and wins over ``max_steps``, which counts from
    step 0; ``num_epochs``, of ``steps_per_epoch`` steps or one pass over the data, replaces
    ``num_steps``.
    """

    num_steps: StepCount | None = None
    max_steps: StepCount | None = None
    num_epochs: PositiveInt | None = None
    steps_per_epoch: StepCount | None = None
    eval_frequency: EvalFrequency = 1.0
    """int: evaluate every so many steps. float: every such fraction of the run. 0: never."""
    eval_steps: StepCount | None = None
    """Batches of one evaluation; None takes the whole data."""
    grad_accum_steps: PositiveInt = 1
    """For other devices; a cluster cuts the global batch into micro-batches itself."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.num_epochs is not None and self.num_steps is not None:
            raise ValueError("num_steps and num_epochs exclude each other")
        if self.steps_per_epoch is not None and self.num_epochs is None:
            raise ValueError("steps_per_epoch needs num_epochs")
        return self


Role = Literal["crd", "wrk", "wgt", "act", "cmd", "br", "chf"]
"""Short names of the cluster's tasks (cluster_interface.md, section 1.1)."""

ROLES: tuple[str, ...] = get_args(Role)

LevelName = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"]


def _upper(value: Any) -> Any:
    """``info`` is INFO, and ``"20"`` the number."""
    if not isinstance(value, str):
        return value
    return int(value) if value.isdecimal() else value.upper()


Level = Annotated[LevelName | int, BeforeValidator(_upper)]


def levels_by_role(value: Any) -> Any:
    """One level for all as a level for each role; a mapping ``role[.tag][.phase]: level`` as is."""
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
    """Log settings (cluster_interface.md, section 2.2)."""

    log_steps: StepCount = 1
    """Print the loss every so many steps."""
    log_level: Level = "INFO"
    """Of the user's process."""
    wsc_log_level: Annotated[dict[str, Level], BeforeValidator(levels_by_role)] = Field(
        default_factory=dict
    )
    """Of the real cluster's tasks; emulated roles report to the user's process alone."""
    enable_act_frequency: bool = False
    """Fetch losses on log steps only: an emulated cluster always does."""


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
    """Which data, with keys that the processor validates; ``dump`` gives them all."""

    model_config = ConfigDict(extra="allow")

    data_processor: str
    batch_size: PositiveInt
    """Samples of a step over all systems together."""
    micro_batch_size: Annotated[None, BeforeValidator(_refuse_micro_batch)] = None


DataLoaders = Annotated[tuple[DataLoaderConfig, ...], one_or_many]
"""One mapping or a list of them."""
