"""How much memory a model takes in training, and which room of the machine can hold it.

Counted per trained parameter, in mixed precision: a 16-bit weight and a 16-bit gradient where it is
computed with; an fp32 master, an fp32 sum of gradients and the state of the optimizer in MemoryX.
Activations are not in it: they follow from the captured step and the micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wsc.core.errors import ConfigError, did_you_mean
from wsc.core.program import GRADIENT_BYTES, MASTER_BYTES
from wsc.timing.hardware import MemoryXSpec, WaferSpec
from wsc.timing.least import check_least

STATE_BYTES = {
    "SGD": 0,
    "SGD with momentum": 4,
    "Lion": 4,
    "Adam": 8,
    "AdamW": 8,
    "Lamb": 8,
}
"""Optimizer state per parameter beside the master: fp32 moments, as ``memoryx.optim`` keeps them.
Adafactor is missing: its state grows with rows and columns, not with parameters."""

STREAM_BYTES = 2
"""Of a weight, or a gradient, in 16 bit."""

Room = Literal["DRAM", "flash", "none"]


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they hold, and how much the machine has."""

    weights_bytes: int
    """16-bit weights."""
    gradients_bytes: int
    """16-bit gradients."""
    masters_bytes: int
    """fp32 masters."""
    sums_bytes: int
    """fp32 sums of gradients."""
    state_bytes: int
    """Optimizer state."""
    sram_bytes: int
    """SRAM of one wafer."""
    dram_bytes: int
    """DRAM of MemoryX."""
    flash_bytes: int
    """Flash of MemoryX."""

    @property
    def resident_bytes(self) -> int:
        """To train without streaming: what a wafer would have to hold of it.

        The update takes each 16-bit gradient as it comes, so no fp32 sum is kept.
        """
        return self.weights_bytes + self.gradients_bytes + self.masters_bytes + self.state_bytes

    @property
    def memoryx_bytes(self) -> int:
        """What MemoryX holds when weights stream."""
        return self.masters_bytes + self.sums_bytes + self.state_bytes

    @property
    def fits_sram(self) -> bool:
        """Whether one wafer could hold it all, before any activation; else weights must stream."""
        return self.resident_bytes <= self.sram_bytes

    @property
    def room(self) -> Room:
        """The tier of MemoryX that suffices: DRAM, DRAM with flash behind it, or none."""
        if self.memoryx_bytes <= self.dram_bytes:
            return "DRAM"
        return "flash" if self.memoryx_bytes <= self.dram_bytes + self.flash_bytes else "none"


def memory_estimate(
    parameters: int, optimizer: str, wafer: WaferSpec, memoryx: MemoryXSpec
) -> MemoryEstimate:
    """The estimate for ``parameters`` trained with ``optimizer``, a key of ``STATE_BYTES``.

    Raises ConfigError if there are no parameters or the optimizer is not known.
    """
    check_least("a model", parameters=parameters)
    if optimizer not in STATE_BYTES:
        raise ConfigError(
            "the state of this optimizer is not known",
            where="optimizer",
            value=optimizer,
            rule=f"one of {', '.join(STATE_BYTES)}",
            remedy=did_you_mean(optimizer, STATE_BYTES),
        )
    return MemoryEstimate(
        weights_bytes=parameters * STREAM_BYTES,
        gradients_bytes=parameters * STREAM_BYTES,
        masters_bytes=parameters * MASTER_BYTES,
        sums_bytes=parameters * GRADIENT_BYTES,
        state_bytes=parameters * STATE_BYTES[optimizer],
        sram_bytes=wafer.sram_bytes,
        dram_bytes=memoryx.dram_bytes,
        flash_bytes=memoryx.flash_bytes,
    )
