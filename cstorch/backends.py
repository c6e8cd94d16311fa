"""Flags of the backend, as attributes: ``cstorch.backends.csx.performance.micro_batch_size = 4``.

Read when a step is traced; names and defaults are the vendor's (cluster_interface.md, 2.3).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wsc.core.micro_batches import MicroBatchSize


class _Flags(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class PerformanceFlags(_Flags):
    """``csx.performance``."""

    micro_batch_size: MicroBatchSize = "auto"
    """Samples that a system works on at a time; None runs its whole share at once."""


class PrecisionFlags(_Flags):
    """``csx.precision``."""

    optimization_level: Literal[0, 1, 2] = 1
    """0 computes in fp32 on weights streamed in half precision; 1 and 2 compute in half."""


class CsxFlags(_Flags):
    """``csx``."""

    performance: PerformanceFlags = Field(default_factory=PerformanceFlags)
    precision: PrecisionFlags = Field(default_factory=PrecisionFlags)


csx = CsxFlags()


def reset() -> None:
    """All flags back to their defaults."""
    csx.performance = PerformanceFlags()
    csx.precision = PrecisionFlags()
