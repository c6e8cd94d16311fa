"""Helpers around the training loop."""

from typing import Any

from cstorch.utils import benchmark, data

__all__ = ["benchmark", "data", "tensorboard"]


def __getattr__(name: str) -> Any:
    """Import ``tensorboard`` when it is asked for: simulations do without its package."""
    if name == "tensorboard":
        from cstorch.utils import tensorboard  # noqa: PLC0415

        return tensorboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
