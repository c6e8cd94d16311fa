"""Hooks that a user's program registers, kept as torch keeps them: by a handle's number."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from torch.utils.hooks import RemovableHandle

Hook = TypeVar("Hook")


def registered(hooks: OrderedDict[int, Hook], hook: Hook) -> RemovableHandle:
    """Add a hook; return a handle whose ``remove()`` takes it away."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
