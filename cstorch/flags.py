"""Flags of the backend, as attributes: ``cstorch.backends.csx.performance.micro_batch_size = 4``.

They are read when a step is traced; names and defaults are the vendor's (cerebras_pytorch 2.10,
``backends.py``). A flag acts, or is kept without effect, or is refused where it would change the
result, as the docstrings of the classes say. The settings of ``cstorch.amp`` are kept here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from cstorch.server_settings import DebugArgs, update_debug_args_from_keys
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.program.micro_batches import MicroBatchPolicy, MicroBatchSize
from waferstream.core.units import GIB

MAX_TRANSFER_BYTES = 2 * 2**30


class UnknownFlagError(ConfigError, AttributeError):
    """A flag that does not exist."""


class _Flags(BaseModel):
    """Base of all groups: checks names and values when a flag is assigned."""

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, arbitrary_types_allowed=True
    )

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in type(self).model_fields:
            raise self._unknown(name)
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise ConfigError(
                f"a flag has a wrong value: {error.errors()[0]['msg']}",
                code="flag-value-invalid",
                where=f"{type(self).__name__}.{name}",
                value=value,
            ) from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from types
        raise self._unknown(name)

    def _unknown(self, name: str) -> UnknownFlagError:
        known = list(type(self).model_fields)
        return UnknownFlagError(
            f"there is no flag {name}",
            code="unknown-flag",
            where=f"cstorch.backends, {type(self).__name__}",
            value=name,
            rule=f"one of {', '.join(known)}",
            remedy=did_you_mean(name, known),
        )


def _refuse(value: object) -> object:
    """Refuse to switch on a flag that would change the result of a run."""
    if value:
        raise ValueError("it would change the result of a run, and is not emulated")
    return value


Refused = Annotated[bool, BeforeValidator(_refuse)]


class PerformanceFlags(_Flags):
    """Flags under ``csx.performance``: all but ``micro_batch_size`` have no effect."""

    micro_batch_size: MicroBatchSize = "auto"
    """Samples of a micro-batch, or the policy that chooses them
    (``waferstream.core.program.micro_batches``)."""

    transfer_processes: PositiveInt = 5
    max_transfer_bytes: int = Field(default=256 * 2**20, ge=1, le=MAX_TRANSFER_BYTES)
    compress_weights: bool = False
    use_speculative_optimizers: bool = True

    @property
    def policy(self) -> MicroBatchPolicy:
        """The policy that ``micro_batch_size`` asks for."""
        return MicroBatchPolicy(self.micro_batch_size)


class PrecisionFlags(_Flags):
    """Flags under ``csx.precision``."""

    optimization_level: Literal[0, 1, 2] = 1
    """0 computes in fp32 on weights streamed in half precision; 1 and 2 compute in half precision,
    1 with softmax in fp32 (``waferstream.compiler.capture.autocast``)."""

    stochastic_rounding: bool = False
    """Let training steps round results to the half type by chance, without bias
    (``waferstream.numerics.half_types``); a name of our own."""


class ClusterFlags(_Flags):
    """Flags under ``csx.cluster``, without effect: a system here has no faults of its own."""

    auto_taint: bool = False


class S3Flags(_Flags):
    """Flags under ``csx.storage.s3``, without effect: checkpoints are local files."""

    profile: str | None = None


class StorageFlags(_Flags):
    """Flags under ``csx.storage``."""

    s3: S3Flags = Field(default_factory=S3Flags)


class Ini(SimpleNamespace):
    """Free-form settings of the vendor's compiler, by any name; kept without effect."""


def _ini(value: object) -> object:
    return Ini(**value) if isinstance(value, Mapping) else value


def _debug_args(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    settings = DebugArgs()
    update_debug_args_from_keys(settings, value)
    return settings


def _kinds(value: object) -> object:
    """Return a kind, or a collection of kinds, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value or ())  # type: ignore[arg-type]


class DebugFlags(_Flags):
    """Flags under ``csx.debug``.

    ``lazy_initialization``, ``fabric_type_blacklist``, ``retrace_every_iteration`` and
    ``implicit_cast_cb16_to_fp32`` act; ``drop_data`` and ``skip_weight_init`` are refused, since
    they change the result. The limits of memory are those of ``memory_limits``. All others have no
    effect: they configure the vendor's compiler and servers.
    """

    lazy_initialization: bool = True
    """Let large models take no memory until the cluster starts."""

    fabric_type_blacklist: Annotated[
        tuple[Literal["cs2", "cs3"], ...], BeforeValidator(_kinds)
    ] = ()
    """Kinds of system on which a job must not run."""

    drop_data: Refused = False
    skip_weight_init: Refused = False

    retrace_every_iteration: bool = False
    """Run the Python of a traced step in every iteration, each step as a job of its own; its ops
    must stay the same."""

    implicit_cast_cb16_to_fp32: bool = False
    """Let results of type cbfloat16 leave the wafer in fp32, which are refused otherwise."""

    ini: Annotated[Ini, BeforeValidator(_ini)] = Field(default_factory=Ini)
    debug_args: Annotated[DebugArgs, BeforeValidator(_debug_args)] = Field(
        default_factory=DebugArgs
    )
    optimize_initialization: bool = True
    log_initialization: bool = True
    save_gpv: bool = False
    check_constraints: bool = False
    op_definition_module: Path | None = None
    skip_connectivity_check: bool = False
    compile_crd_memory_gi: PositiveFloat | None = None
    execute_crd_memory_gi: PositiveFloat | None = None
    wrk_memory_gi: PositiveFloat | None = None
    act_memory_gi: PositiveFloat | None = None
    cmd_memory_gi: PositiveFloat | None = None
    wgt_memory_gi: PositiveFloat | None = None
    chf_memory_gi: PositiveFloat | None = None

    @property
    def memory_limits(self) -> dict[str, int]:
        """The limits of the memory of roles that are set: bytes by the name of the flag.

        Those of command and chief servers, which are no roles here, limit nothing.
        """
        given = ((name, value) for name, value in self if name.endswith("_memory_gi"))
        return {name: round(value * GIB) for name, value in given if value is not None}


class CsxFlags(_Flags):
    """Flags under ``csx``."""

    cluster: ClusterFlags = Field(default_factory=ClusterFlags)
    debug: DebugFlags = Field(default_factory=DebugFlags)
    performance: PerformanceFlags = Field(default_factory=PerformanceFlags)
    precision: PrecisionFlags = Field(default_factory=PrecisionFlags)
    storage: StorageFlags = Field(default_factory=StorageFlags)


class AmpSettings(_Flags):
    """Settings of mixed precision."""

    half_dtype: Literal["bfloat16", "float16", "cbfloat16"] = "bfloat16"
    enabled: bool = True


csx = CsxFlags()
amp = AmpSettings()


def reset() -> None:
    """Set all flags, and the settings of ``cstorch.amp``, back to their defaults."""
    for name, group in CsxFlags():
        setattr(csx, name, group)
    amp.half_dtype, amp.enabled = "bfloat16", True


@contextmanager
def restored() -> Iterator[None]:
    """Give all flags, and the settings of ``cstorch.amp``, their former values after the block."""
    groups, settings = dict(csx), dict(amp)
    for name, group in groups.items():
        setattr(csx, name, group.model_copy(deep=True))
    try:
        yield
    finally:
        for name, group in groups.items():
            setattr(csx, name, group)
        for name, value in settings.items():
            setattr(amp, name, value)
