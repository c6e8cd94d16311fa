"""Levels of sparsity as a user writes them: a number, a mapping, or a function of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from waferstream.core.config import Config, validate
from waferstream.core.sparsity.levels import AnyLevel, Constant, Level, Table

Function = Callable[[torch.Tensor], Any]
Given = float | Mapping[str, Any] | AnyLevel | Function | None
"""What a level may be written as; a function gets the step as a tensor."""


class _Levels(Config):
    level: AnyLevel


def level_of(given: Given, where: str) -> AnyLevel | Function | None:
    """Return a level, or the function that was given.

    Raises:
        ConfigError: A number is outside of 0 to 1, or a mapping describes no schedule.
    """
    if given is None or isinstance(given, Level):
        return given
    if isinstance(given, Mapping):
        return validate(_Levels, {"level": dict(given)}, where).level
    if callable(given):
        return given
    return validate(Constant, {"value": given}, where)


def tabulated(level: AnyLevel | Function | None, num_updates: int) -> AnyLevel | None:
    """Return a level as data; a function of the user's is called for every update."""
    if level is None or isinstance(level, Level):
        return level
    steps = range(num_updates + 1)
    return Table(values=tuple(float(level(torch.tensor(step))) for step in steps))
