"""How much SRAM a wafer has for activations, and the largest micro-batch whose activations fit."""

from __future__ import annotations

from collections.abc import Collection

from wsc.core.errors import ConfigError
from wsc.core.program import Program
from wsc.core.units import format_bytes
from wsc.timing.hardware import WaferSpec
from wsc.timing.placement.liveness import Liveness


def code_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs that programs and the runtime take."""
    return wafer.cores * wafer.fabric.sram_reserved_bytes_per_pe


def stream_bytes(wafer: WaferSpec) -> int:
    """SRAM of all PEs kept for weights that arrive and gradients that leave."""
    fabric = wafer.fabric
    return wafer.cores * fabric.stream_banks * fabric.sram_bytes_per_pe // fabric.sram_banks


def activation_bytes(wafer: WaferSpec) -> int:
    """SRAM left for activations.

    Raises ConfigError for a wafer that has none left.
    """
    left = wafer.sram_bytes - code_bytes(wafer) - stream_bytes(wafer)
    if left <= 0:
        raise ConfigError(
            "the wafer has no SRAM left for activations",
            where="machine.system.sram_bytes",
            value=format_bytes(wafer.sram_bytes),
            rule=f"code takes {format_bytes(code_bytes(wafer))} and streams "
            f"{format_bytes(stream_bytes(wafer))} of it",
            remedy="raise sram_bytes",
        )
    return left


def largest_micro_batch(
    program: Program, wafer: WaferSpec, recomputed: Collection[int] = ()
) -> int:
    """Samples of the largest micro-batch that fits, from a program captured at any size; 0 if none.

    ``recomputed`` are forward segments whose internals are not kept (``Liveness.recomputable``
    are all that can be). Raises ConfigError for a wafer without room for activations.
    """
    room = activation_bytes(wafer)
    footprints = [moment.footprint for moment in Liveness(program, recomputed).moments()]
    return min(
        max(0, room - footprint.fixed_bytes) // max(1, footprint.sample_bytes)
        for footprint in footprints
    )
