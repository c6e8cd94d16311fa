"""Traced steps: how one is recorded, fitted to the wafer, and run again when its Python changes.

Modules that load the compiler are imported when they are first used: that takes seconds, which a
program whose step is in the cache does not have to wait.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cstorch.tracing import recording_step as recording_step
    from cstorch.tracing import run_again as run_again
else:

    def __getattr__(name: str) -> Any:
        if name not in ("recording_step", "run_again"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
