"""The module torch, imported at its first use.

The command line reads the arguments of every rule; importing torch for that would take seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
else:

    class _LazyTorch:
        """Stand-in that imports torch when an attribute is read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("torch"), name)

    torch = _LazyTorch()

__all__ = ["torch"]
