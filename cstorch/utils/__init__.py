"""Helpers around the training loop."""

from importlib import import_module
from typing import Any

from cstorch.utils import benchmark, data

__all__ = ["benchmark", "data", "tensorboard"]


def __getattr__(name: str) -> Any:
    """Import ``tensorboard`` when it is asked for: simulations do without its package."""
    if name == "tensorboard":
        return import_module("cstorch.utils.tensorboard")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
