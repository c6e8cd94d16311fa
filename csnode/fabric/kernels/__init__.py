"""Kernels of a layer on the simulated wafer, as programs that compute values and take cycles.

Each takes a fabric and whole matrices, lays them out, runs a program, and returns a ``Result``: the
values put together again, and the outcome of the run. The closed forms of
``waferstream.machine.kernels`` are derived from the same mappings, file by file, and compared with
these kernels.
"""

from csnode.fabric.kernels.masked import masked_weight_gradient
from csnode.fabric.kernels.resident import gemv, summa, weight_gradient
from csnode.fabric.kernels.streaming import streamed_layers, weight_streaming
from csnode.fabric.kernels.tensors import (
    attention,
    cross_entropy,
    embedding,
    layer_norm,
    rms_norm,
    softmax,
)
from csnode.fabric.kernels.tiles import Result

__all__ = [
    "Result",
    "attention",
    "cross_entropy",
    "embedding",
    "gemv",
    "layer_norm",
    "masked_weight_gradient",
    "rms_norm",
    "softmax",
    "streamed_layers",
    "summa",
    "weight_gradient",
    "weight_streaming",
]
