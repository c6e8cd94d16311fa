"""Flags of the configuration, set as the Python flags of ``cstorch.backends`` while they apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cstorch
from waferstream.config.params import InitConfig, Scope
from waferstream.config.sections.flags import (
    Flags,
    GlobalFlags,
    ScopedTrainFlags,
    ScopedValidateFlags,
)


@contextmanager
def global_flags(init: InitConfig) -> Iterator[None]:
    """Apply GlobalFlags and those of the backend inside the block; they win in this order.

    A flag has its former value afterwards.
    """
    with _applied(init.backend.flags | _set_by(init.callback(GlobalFlags))):
        yield


@contextmanager
def scoped_flags(init: InitConfig, scope: Scope) -> Iterator[None]:
    """Apply the flags of training or of evaluation inside the block, over the global ones."""
    kind = ScopedTrainFlags if scope == "train" else ScopedValidateFlags
    size = {"csx.performance.micro_batch_size": init.micro_batch_policy(scope).requested}
    with _applied(_set_by(init.callback(kind)) | size):
        yield


def _set_by(flags: Flags | None) -> dict[str, Any]:
    """Return the flags that a callback sets, by dotted name."""
    return flags.values() if flags else {}


@contextmanager
def _applied(values: Mapping[str, Any]) -> Iterator[None]:
    before = {path: _read(path) for path in values}
    try:
        for path, value in values.items():
            _write(path, value)
        yield
    finally:
        for path, value in before.items():
            _write(path, value)


def _holder(path: str) -> tuple[Any, str]:
    """Return the group that holds a flag, and the flag's name in it."""
    *groups, name = path.split(".")
    holder: Any = cstorch.backends
    for group in groups:
        holder = getattr(holder, group)
    return holder, name


def _read(path: str) -> Any:
    return getattr(*_holder(path))


def _write(path: str, value: Any) -> None:
    setattr(*_holder(path), value)
