"""What ``--wafer_trace`` asks for, as it is typed: ``LAYER[:KERNEL][@ROWSxCOLUMNS]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from csnode.engine.spec import KERNEL_NAMES, KernelName
from waferstream.core.errors import ConfigError, did_you_mean

FLAG = "--wafer_trace"
MOST_PES = 256
"""PEs of the largest region: more cannot be distinguished on a screen."""

_SIDE = r"\d{1,9}"  # int() refuses thousands of digits
_FORM = re.compile(
    rf"(?P<layer>[^:@]+)(:(?P<kernel>[^@]+))?(@(?P<rows>{_SIDE})x(?P<columns>{_SIDE}))?"
)


@dataclass(frozen=True)
class WaferTraceRequest:
    """One kernel of a layer on a small region; the layer's first streamed product by default."""

    layer: str
    kernel: KernelName | None = None
    rows: int = 4
    columns: int = 6


def parse_wafer_trace(text: str) -> WaferTraceRequest:
    """Parse what was typed.

    Raises:
        ConfigError: It has another form, names a kernel that the simulator has not, or a region
            that is too large.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(
            "a trace of the wafer must name a layer",
            code="wafer-trace-form",
            where=FLAG,
            value=text,
            rule="LAYER[:KERNEL][@ROWSxCOLUMNS], such as decoder.0:softmax@4x6",
        )
    kernel = found["kernel"]
    if kernel is not None and kernel not in KERNEL_NAMES:
        raise ConfigError(
            "the kernel of a trace must be one that the simulator of the fabric has",
            code="wafer-trace-kernel",
            where=FLAG,
            value=kernel,
            rule=f"one of {', '.join(KERNEL_NAMES)}",
            remedy=did_you_mean(kernel, KERNEL_NAMES),
        )
    name = next((name for name in KERNEL_NAMES if name == kernel), None)
    if found["rows"] is None:
        return WaferTraceRequest(found["layer"], name)
    rows, columns = int(found["rows"]), int(found["columns"])
    if min(rows, columns) < 1 or rows * columns > MOST_PES:
        raise ConfigError(
            f"the region of a trace must have 1 to {MOST_PES} PEs",
            code="wafer-trace-region",
            where=FLAG,
            value=f"{rows} rows x {columns} columns",
            remedy="name a smaller one, such as @4x6",
        )
    return WaferTraceRequest(found["layer"], name, rows, columns)
