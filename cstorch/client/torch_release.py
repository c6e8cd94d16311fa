"""What programs for the real machine expect of torch 2.4, which its release 2.10 goes with."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

_original = pytree.TreeSpec.__init__


def _init(self: pytree.TreeSpec, type: Any, *args: Any, **fields: Any) -> None:
    """Accept the names of the fields, too, which ``dataclasses.replace`` passes."""
    names = {"_context": "context", "_children": "children_specs"}
    renamed = {new: fields.pop(old) for old, new in names.items() if old in fields}
    _original(self, type, *args, **{**renamed, **fields})


def adapt() -> None:
    """Let ``dataclasses.replace`` work on the structure of a pytree. Idempotent."""
    pytree.TreeSpec.__init__ = _init  # type: ignore[method-assign]


def restore() -> None:
    """Undo ``adapt``. Idempotent."""
    pytree.TreeSpec.__init__ = _original  # type: ignore[method-assign]
