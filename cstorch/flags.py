"""Flags of the backend, as attributes: ``cstorch.backends.csx.performance.micro_batch_size = 4``.

They are read when a step is traced; names and defaults are the vendor's (cluster_interface.md,
section 2.3). The settings of ``cstorch.amp`` are kept here too.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from wsc.core.micro_batches import MicroBatchPolicy, MicroBatchSize


class _Flags(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class PerformanceFlags(_Flags):
    """Flags under ``csx.performance``."""

    micro_batch_size: MicroBatchSize = "auto"
    """Samples of a micro-batch, or the policy that chooses them (``wsc.core.micro_batches``)."""

    @property
    def policy(self) -> MicroBatchPolicy:
        """The policy that ``micro_batch_size`` asks for."""
        return MicroBatchPolicy(self.micro_batch_size)


class PrecisionFlags(_Flags):
    """Flags under ``csx.precision``."""

    optimization_level: Literal[0, 1, 2] = 1
    """0 computes in fp32 on weights streamed in half precision; 1 and 2 compute in half precision,
    1 with softmax in fp32 (``wsc.compiler.autocast``)."""


class DebugFlags(_Flags):
    """Flags under ``csx.debug``: GiB of memory that the real machine grants a role.

    None is the server's default. They have no effect here, where memory follows from cluster.yaml.
    """

    compile_crd_memory_gi: PositiveInt | None = None
    execute_crd_memory_gi: PositiveInt | None = None
    wrk_memory_gi: PositiveInt | None = None
    act_memory_gi: PositiveInt | None = None
    cmd_memory_gi: PositiveInt | None = None
    wgt_memory_gi: PositiveInt | None = None
    chf_memory_gi: PositiveInt | None = None


class CsxFlags(_Flags):
    """Flags under ``csx``."""

    debug: DebugFlags = Field(default_factory=DebugFlags)
    performance: PerformanceFlags = Field(default_factory=PerformanceFlags)
    precision: PrecisionFlags = Field(default_factory=PrecisionFlags)


class AmpSettings(_Flags):
    """Settings of mixed precision."""

    half_dtype: Literal["bfloat16", "float16"] = "bfloat16"
    enabled: bool = True


csx = CsxFlags()
amp = AmpSettings()


def reset() -> None:
    """Set all flags, and the settings of ``cstorch.amp``, back to their defaults."""
    csx.debug = DebugFlags()
    csx.performance = PerformanceFlags()
    csx.precision = PrecisionFlags()
    amp.half_dtype, amp.enabled = "bfloat16", True
