"""How much SRAM a wafer has for data."""

from __future__ import annotations

from timing.hardware import WaferSpec
from wsc.core.errors import ConfigError
from wsc.core.units import format_bytes


def code_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs that code and the runtime take."""
    return wafer.cores * wafer.fabric.sram_reserved_bytes_per_pe


def data_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs left for activations and the buffers of streams.

    Raises ConfigError if there is none.
    """
    left = wafer.sram_bytes - code_bytes(wafer)
    if left <= 0:
        raise ConfigError(
            "the wafer has no SRAM left for data",
            where="machine.system.sram_bytes",
            value=format_bytes(wafer.sram_bytes),
            rule=f"code takes {format_bytes(code_bytes(wafer))}",
            remedy="raise it or lower machine.system.fabric.sram_reserved_bytes_per_pe "
            "in cluster.yaml",
        )
    return left
