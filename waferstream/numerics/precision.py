"""Dtypes: those that can be sent, and those in which weights stream and nodes compute."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from waferstream.core.program.program import Rounding
from waferstream.numerics import cbfloat16

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
CARRIED = {**DTYPES, "cbfloat16": cbfloat16.CODE}
"""Torch dtype of the elements of a stream; cbfloat16 travels as codes."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class StreamPrecision:
    """Dtypes of weights: ``stream`` between server and node, ``compute`` inside a kernel.

    Masters are always fp32. ``bfloat16``/``float32`` rounds the weights to bf16 for the stream and
    computes in fp32 (precision_opt_level 0); ``bfloat16``/``bfloat16`` also computes in bf16.
    ``waferstream.compiler.capture.autocast`` says which functions compute in which of them.
    """

    stream: str = "bfloat16"
    compute: str = "bfloat16"
    softmax_in_half: bool = field(default=False, repr=False)
    """Whether softmax keeps a half type (precision_opt_level 2); visible in the graph's casts."""
    casts: bool = field(default=True, repr=False)
    """Whether functions cast as ``autocast`` says; visible in the graph's casts, too."""
    rounding: Rounding = "nearest"
    """How training steps round results to the half type; evaluation rounds to nearest."""

    @property
    def sums_in_fp32(self) -> bool:
        """Whether activations are as wide as their sums, which on a system are fp32 alone."""
        return self.compute == "float32" and self.stream != "float32"

    @property
    def stream_dtype(self) -> torch.dtype:
        """Torch dtype of streamed weights."""
        return dtype_in_program(self.stream)

    @property
    def compute_dtype(self) -> torch.dtype:
        """Torch dtype of weights inside a kernel."""
        return dtype_in_program(self.compute)


def dtype_in_program(name: str) -> torch.dtype:
    """Return the torch dtype of values in a user's program."""
    return cbfloat16.PROXY if name == "cbfloat16" else DTYPES[name]


def write_stream(masters: torch.Tensor, elements: torch.Tensor, name: str) -> None:
    """Round fp32 masters to a type and write them as elements of a stream."""
    elements.copy_(cbfloat16.encode(masters) if name == "cbfloat16" else masters)


def read_stream(elements: torch.Tensor, name: str, *, in_fp32: bool) -> torch.Tensor:
    """Return the elements of a stream in the form in which kernels hold them.

    ``in_fp32`` is ``Program.holds_fp32``.
    """
    if name == "cbfloat16":
        return cbfloat16.decode(elements)
    return elements.to(torch.float32) if in_fp32 else elements
