"""SRAM of a wafer: bytes for code, bytes left for data, and buffers that streams pass through.

Weights trigger work as they arrive, and gradients leave as they are made (Lie, Hot Chips 34), so
neither is stored as a whole. Only while a segment is being started, nothing takes weights off the
link and nothing puts gradients on it: in that time the link fills one buffer and empties the other.
"""

from __future__ import annotations

from waferstream.core.errors import ConfigError
from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.core.program.stream_plan import GRADIENT_BYTES
from waferstream.core.units import PS_PER_S, format_bytes
from waferstream.machine.hardware import WaferSpec


def code_bytes(wafer: WaferSpec) -> int:
    """Return the SRAM of all PEs that code and the runtime take."""
    return wafer.cores * wafer.fabric.sram_reserved_bytes_per_pe


def data_bytes(wafer: WaferSpec) -> int:
    """Return the SRAM of all PEs left for activations and the buffers of streams.

    Raises ConfigError if there is none.
    """
    left = wafer.sram_bytes - code_bytes(wafer)
    if left <= 0:
        raise ConfigError(
            "the wafer has no SRAM left for data",
            code="no-sram-for-data",
            where="machine.system.sram_bytes",
            value=format_bytes(wafer.sram_bytes),
            rule=f"more than the {format_bytes(code_bytes(wafer))} that code takes",
            remedy="raise it or lower machine.system.fabric.sram_reserved_bytes_per_pe "
            "in cluster.yaml",
        )
    return left


def describe(wafer: WaferSpec) -> str:
    """Return the size of a wafer as all reports state it."""
    grid = f"{wafer.fabric.columns} x {wafer.fabric.rows}"
    code = format_bytes(code_bytes(wafer))
    return (
        f"{wafer.cores:,} cores, of which kernels use a grid of {grid}; "
        f"{format_bytes(wafer.sram_bytes)} of SRAM, of which code takes {code}"
    )


def link_bytes(wafer: WaferSpec) -> int:
    """Return the bytes that the system's link carries one way while a segment is started."""
    return wafer.io_bandwidth_bytes_per_s * wafer.segment_overhead_ps // PS_PER_S


def buffer_bytes(program: Program, wafer: WaferSpec) -> tuple[int, ...]:
    """Return the bytes of the buffers while each segment runs; see ``Buffers``."""
    return tuple(Buffers(program, wafer).num_bytes)


class Buffers:
    """The buffers while each segment runs, where a segment may be given more weights.

    A segment needs a buffer for weights, its own or those of the next one, and one for its
    gradients; neither is larger than what streams meanwhile.
    """

    def __init__(self, program: Program, wafer: WaferSpec) -> None:
        self._program = program
        self._most = link_bytes(wafer)
        self._names = [segment.weights for segment in program.segments]
        self._weights = [self._weight_bytes(names) for names in self._names]
        self.num_bytes = [self._buffers(index) for index in range(len(self._names))]

    def stream_again(self, names: tuple[str, ...], user: int) -> None:
        """Stream weights to a segment that may have some of them already."""
        self._names[user] = tuple(dict.fromkeys((*self._names[user], *names)))
        self._weights[user] = self._weight_bytes(self._names[user])
        for index in (user - 1, user):
            self.num_bytes[index] = self._buffers(index)

    def _weight_bytes(self, names: tuple[str, ...]) -> int:
        return BYTES_PER_ELEMENT[self._program.stream_dtype] * self._program.num_elements(names)

    def _buffers(self, index: int) -> int:
        weights = max(self._weights[index : index + 2])  # its own, or those of the next
        made = self._program.segments[index].gradients
        gradients = GRADIENT_BYTES * self._program.num_elements(made)
        return min(self._most, weights) + min(self._most, gradients)
