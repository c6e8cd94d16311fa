"""Names for debugging: scopes of ops, and paths of modules (section 3.2).

Results do not depend on them.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from torch import nn

_PATH = "_cstorch_debug_name"

_scopes: ContextVar[tuple[str, ...]] = ContextVar("name_scopes", default=())
_debug_scope: ContextVar[str | None] = ContextVar("debug_scope", default=None)


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
