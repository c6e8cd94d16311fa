"""Helpers of the front end under the names of the vendor's (section 3.2): tensors, and debugging.

Tensors of the user's program lie on the device of the backend until they are streamed, so these
are torch's functions on that device. Inside a traced step they are ops of the graph. Names are for
debugging, scopes of ops and paths of modules; results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any

import numpy as np
import torch
from torch import nn

from cstorch.current import current_backend, current_torch_device

Shape = Sequence[int]

_PATH = "_cstorch_debug_name"

_scopes: ContextVar[tuple[str, ...]] = ContextVar("name_scopes", default=())
_debug_scope: ContextVar[str | None] = ContextVar("debug_scope", default=None)


def device() -> AbstractContextManager[torch.device]:
    """Return the context in which models are built: ``with cstorch.device():``."""
    return current_backend().device


def tensor(
    data: Any, dtype: torch.dtype | None = None, requires_grad: bool = False
) -> torch.Tensor:
    """Return a tensor with a copy of ``data``."""
    place = current_torch_device()
    return torch.tensor(data, dtype=dtype, device=place, requires_grad=requires_grad)


def full(shape: Shape, value: float, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor in which every element is ``value``."""
    return torch.full(tuple(shape), value, dtype=dtype, device=current_torch_device())


def ones(shape: Shape, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of ones."""
    return torch.ones(tuple(shape), dtype=dtype, device=current_torch_device())


def zeros(shape: Shape, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of zeros."""
    return torch.zeros(tuple(shape), dtype=dtype, device=current_torch_device())


def full_like(other: torch.Tensor, value: float, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor with the shape of another in which every element is ``value``."""
    return torch.full_like(other, value, dtype=dtype)


def ones_like(other: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of ones with the shape of another."""
    return torch.ones_like(other, dtype=dtype)


def zeros_like(other: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of zeros with the shape of another."""
    return torch.zeros_like(other, dtype=dtype)


def make_constant(value: Any) -> torch.Tensor:
    """Return a tensor that a traced step keeps as a constant; a number or array becomes one."""
    if isinstance(value, np.ndarray):
        return from_numpy(value)
    return torch.as_tensor(value, device=current_torch_device())


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """Return a tensor with the elements of an array, in its memory where that can be written."""
    writable = array if array.flags.writeable else array.copy()
    return torch.from_numpy(writable).to(current_torch_device())


def to_numpy(value: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array; bfloat16, which NumPy does not have, as float32."""
    plain = value.detach().cpu()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()


class name_scope:  # noqa: N801  (the vendor's name; used as a context manager)
    """A scope whose name precedes those of the ops inside: ``with cstorch.name_scope("norm"):``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokens: list[Token[tuple[str, ...]]] = []

    def __enter__(self) -> name_scope:
        self._tokens.append(_scopes.set((*_scopes.get(), self.name)))
        return self

    def __exit__(self, *_error: object) -> None:
        _scopes.reset(self._tokens.pop())


def current_name_scope() -> str:
    """Return the names of the open scopes, outermost first, with dots; empty outside."""
    return ".".join(_scopes.get())


def set_debug_scope(name: str | None) -> None:
    """Let ``get_debug_name`` put a name in front of all others; None for no name."""
    _debug_scope.set(name)


def add_debug_name(module: nn.Module, root_name: str | None = None) -> None:
    """Note in every module below ``module`` its path, for ``get_debug_name``."""
    root = root_name or type(module).__name__
    for path, part in module.named_modules():
        setattr(part, _PATH, f"{root}.{path}" if path else root)


def get_debug_name(module: nn.Module) -> str:
    """Return the path that ``add_debug_name`` noted, or the name of the class."""
    path: str = getattr(module, _PATH, type(module).__name__)
    scope = _debug_scope.get()
    return path if scope is None else f"{scope}.{path}"
