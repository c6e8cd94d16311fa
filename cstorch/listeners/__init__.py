"""Listeners: hooks on traced tensors, and summaries and dumps of what they hear."""

from cstorch.listeners.hooks import register_traced_tensor_hook
from cstorch.listeners.listener import (
    ActivationDump,
    NormTensorListener,
    SummaryTensorListener,
    TensorListener,
)

__all__ = [
    "ActivationDump",
    "NormTensorListener",
    "SummaryTensorListener",
    "TensorListener",
    "register_traced_tensor_hook",
]
