"""SRAM that streams pass through: weights on their way in, gradients on their way out.

Weights trigger work as they arrive, and gradients leave as they are made (Lie, Hot Chips 34), so
neither has to be there as a whole. Only while a segment is being started nothing takes weights off
the link, and nothing puts gradients on it: in that time the link fills one buffer and empties the
other.
"""

from __future__ import annotations

from wsc.core.program import BYTES_PER_ELEMENT, GRADIENT_BYTES, Program
from wsc.core.units import PS_PER_S
from wsc.timing.hardware import WaferSpec


def buffer_bytes(program: Program, wafer: WaferSpec) -> tuple[int, ...]:
    """Of each segment: room for weights, its own or those of the next, and for its gradients."""
    most = link_bytes(wafer)
    weight_bytes = BYTES_PER_ELEMENT[program.stream_dtype]
    found: list[int] = []
    arriving = 0
    for segment in reversed(program.segments):
        weights = weight_bytes * _elements(program, segment.weights)
        gradients = GRADIENT_BYTES * _elements(program, segment.gradients)
        found.append(min(most, max(weights, arriving)) + min(most, gradients))
        arriving = weights
    return tuple(reversed(found))


def link_bytes(wafer: WaferSpec) -> int:
    """What the system's link carries in one direction while a segment is being started."""
    return wafer.io_bandwidth_bytes_per_s * wafer.segment_overhead_ps // PS_PER_S


def _elements(program: Program, names: tuple[str, ...]) -> int:
    return sum(program.parameter[name].num_elements for name in names)
