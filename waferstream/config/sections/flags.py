"""Backend flags with dotted names (cerebras_pytorch 2.10, ``backends.py``).

A flag is None where a file does not set it. A run sets those of ``cstorch.backends``, where each
acts or has no effect (``cstorch.flags``); flags that would change the result are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from waferstream.config.sections.section import Named, NotYet, not_supported
from waferstream.core.config import before, validate
from waferstream.core.program.micro_batches import FLAG, Explore, ImportPath

MAX_TRANSFER_BYTES = 2 * 2**30


MicroBatchSize = Literal["auto", "fill_wafer", "none"] | Explore | PositiveInt | ImportPath
"""Samples per micro-batch, or the policy (``waferstream.core.program.micro_batches``)."""


def _micro_batch_size(value: object) -> object:
    if value == "explore":
        return Explore()
    if isinstance(value, dict):
        return validate(Explore, value, FLAG)
    return "none" if value is None else value


Kind = Literal["cs2", "cs3"]
"""A kind of system."""


_REFUSED = "Refused: it would change the result of a run."


def _flag(name: str, meaning: str = "Accepted for compatibility, without effect.") -> Any:
    return Field(default=None, alias=f"csx.{name}", validate_default=False, description=meaning)


def _refuse_level(value: object) -> None:
    raise not_supported(f"set trainer.init.precision.precision_opt_level: {value}")


def _refuse_rounding(value: object) -> None:
    raise not_supported(f"set trainer.init.precision.stochastic_rounding: {value}")


class Flags(Named):
    """Base of GlobalFlags, ScopedTrainFlags and ScopedValidateFlags."""

    micro_batch_size: Annotated[
        MicroBatchSize | None,
        before(_micro_batch_size, MicroBatchSize | Literal["explore"] | None),
    ] = _flag(
        "performance.micro_batch_size",
        "Samples of a micro-batch, or the policy that chooses them (docs/reproducibility.md).",
    )
    transfer_processes: PositiveInt | None = _flag("performance.transfer_processes")
    max_transfer_bytes: Annotated[int, Field(ge=1, le=MAX_TRANSFER_BYTES)] | None = _flag(
        "performance.max_transfer_bytes"
    )
    compress_weights: bool | None = _flag("performance.compress_weights")
    use_speculative_optimizers: bool | None = _flag("performance.use_speculative_optimizers")

    optimization_level: Annotated[None, BeforeValidator(_refuse_level)] = _flag(
        "precision.optimization_level",
        "Refused: trainer.init.precision.precision_opt_level has it.",
    )
    stochastic_rounding: Annotated[None, BeforeValidator(_refuse_rounding)] = _flag(
        "precision.stochastic_rounding",
        "Refused: trainer.init.precision.stochastic_rounding has it.",
    )
    auto_taint: bool | None = _flag("cluster.auto_taint")
    s3_profile: str | None = _flag("storage.s3.profile")

    ini: dict[str, Any] | None = _flag("debug.ini")
    debug_args: dict[str, Any] | None = _flag("debug.debug_args")
    lazy_initialization: bool | None = _flag(
        "debug.lazy_initialization", "Let large models take no memory until the cluster starts."
    )
    optimize_initialization: bool | None = _flag("debug.optimize_initialization")
    skip_weight_init: NotYet = _flag("debug.skip_weight_init", _REFUSED)
    log_initialization: bool | None = _flag("debug.log_initialization")
    drop_data: NotYet = _flag("debug.drop_data", _REFUSED)
    retrace_every_iteration: bool | None = _flag(
        "debug.retrace_every_iteration",
        "Run the Python of a step in every iteration, each step as a job of its own.",
    )
    implicit_cast_cb16_to_fp32: bool | None = _flag(
        "debug.implicit_cast_cb16_to_fp32",
        "Let results of type cbfloat16 leave the wafer in fp32; refused otherwise.",
    )
    save_gpv: bool | None = _flag("debug.save_gpv")
    check_constraints: bool | None = _flag("debug.check_constraints")
    op_definition_module: Path | None = _flag("debug.op_definition_module")
    skip_connectivity_check: bool | None = _flag("debug.skip_connectivity_check")
    fabric_type_blacklist: tuple[Kind, ...] | Kind | None = _flag(
        "debug.fabric_type_blacklist", "Kinds of system on which a job must not run."
    )
    compile_crd_memory_gi: PositiveFloat | None = _flag(
        "debug.compile_crd_memory_gi", "Most GiB of the process that compiles."
    )
    execute_crd_memory_gi: PositiveFloat | None = _flag(
        "debug.execute_crd_memory_gi", "Most GiB of the process that coordinates."
    )
    wrk_memory_gi: PositiveFloat | None = _flag(
        "debug.wrk_memory_gi", "Most GiB that an input worker may need."
    )
    act_memory_gi: PositiveFloat | None = _flag(
        "debug.act_memory_gi", "Most GiB that an activation server may need."
    )
    cmd_memory_gi: PositiveFloat | None = _flag("debug.cmd_memory_gi")
    wgt_memory_gi: PositiveFloat | None = _flag(
        "debug.wgt_memory_gi", "Most GiB that a weight server may need."
    )
    chf_memory_gi: PositiveFloat | None = _flag("debug.chf_memory_gi")

    def values(self) -> dict[str, Any]:
        """Return the flags that are set, by dotted name, but for the micro-batch size.

        The policy of the micro-batch size is that of a scope (``InitConfig.micro_batch_policy``).
        """
        fields = type(self).model_fields.items()
        found = {str(field.alias): getattr(self, name) for name, field in fields}
        found.pop("csx.performance.micro_batch_size")
        return {path: value for path, value in found.items() if value is not None}


class GlobalFlags(Flags):
    """Flags of the whole run."""


class ScopedTrainFlags(Flags):
    """Flags of training; they override GlobalFlags."""


class ScopedValidateFlags(Flags):
    """Flags of evaluation; they override GlobalFlags."""
