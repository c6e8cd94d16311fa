"""Dtypes: those that can be sent, and those in which weights stream and nodes compute."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

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
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class StreamPrecision:
    """Dtypes of weights: ``stream`` between server and node, ``compute`` inside a kernel.

    Masters are always fp32. ``bfloat16``/``float32`` rounds the weights to bf16 for the stream and
    computes in fp32 (precision_opt_level 0); ``bfloat16``/``bfloat16`` also computes in bf16.
    ``wsc.compiler.autocast`` says which functions compute in which of them.
    """

    stream: str = "bfloat16"
    compute: str = "bfloat16"
    softmax_in_half: bool = field(default=False, repr=False)
    """Whether softmax keeps a half type (precision_opt_level 2); visible in the graph's casts."""

    @property
    def stream_dtype(self) -> torch.dtype:
        """Torch dtype of streamed weights."""
        return DTYPES[self.stream]

    @property
    def compute_dtype(self) -> torch.dtype:
        """Torch dtype of weights inside a kernel."""
        return DTYPES[self.compute]
