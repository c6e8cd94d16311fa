"""Functions of the vendor's module ``backend``, which is a function in ``cstorch``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from torch.utils.hooks import RemovableHandle

from cstorch.backend import Backend
from cstorch.current import backend, current_backend, use_cs
from cstorch.devices import BackendType
from cstorch.listeners.hooks import after_transfer
from cstorch.session.settings import ProgramSettings

__all__ = [
    "Backend",
    "BackendType",
    "backend",
    "current_backend",
    "current_backend_impl",
    "get_backend_args",
    "register_after_tensor_to_cpu",
    "use_cs",
]


def current_backend_impl(raise_exception: bool = True) -> Backend | None:
    """Return the backend of this process; None, or RuntimeError, if there is none."""
    return current_backend(raise_exception=raise_exception)


def get_backend_args(backend_type: BackendType | str) -> dict[str, Parameter]:
    """Return the parameters of a backend of that kind by name."""
    BackendType.from_str(backend_type)
    return dict(signature(ProgramSettings).parameters)


def register_after_tensor_to_cpu(hook: Callable[[Any, str], None]) -> RemovableHandle:
    """Call ``hook(tensor, name)`` for every result of a step that comes back to the host."""
    return after_transfer.register(hook)
