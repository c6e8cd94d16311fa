"""How much SRAM a wafer has for activations."""

from __future__ import annotations

from wsc.core.errors import ConfigError
from wsc.core.units import format_bytes
from wsc.timing.hardware import WaferSpec


def code_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs that code and the runtime take."""
    return wafer.cores * wafer.fabric.sram_reserved_bytes_per_pe


def stream_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs kept for weights that pass and gradients that leave.

    Weights are consumed as they arrive (Lie, Hot Chips 34), so this does not grow with the model.
    """
    fabric = wafer.fabric
    return wafer.cores * fabric.stream_banks * fabric.sram_bytes_per_pe // fabric.sram_banks


def activation_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs left for activations. Raises ConfigError if there is none."""
    left = wafer.sram_bytes - code_bytes(wafer) - stream_bytes(wafer)
    if left <= 0:
        raise ConfigError(
            "the wafer has no SRAM left for activations",
            where="machine.system.sram_bytes",
            value=format_bytes(wafer.sram_bytes),
            rule=f"code takes {format_bytes(code_bytes(wafer))}, "
            f"streams take {format_bytes(stream_bytes(wafer))}",
            remedy="raise sram_bytes",
        )
    return left
