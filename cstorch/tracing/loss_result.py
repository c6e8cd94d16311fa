"""The result of a traced step that progress lines show as its loss."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from cstorch.recording.loop import Closure
from waferstream.core.roles.role import Value

LOSS = "loss"


def loss_position(
    outputs: Any, closures: Sequence[Closure], differentiable: Sequence[int]
) -> int | None:
    """Return the position of the loss among the results of a step, None if it is unknown.

    It is what the step returns under the name ``loss``, or passes to a step closure as an argument
    of that name, or the only scalar with a gradient.

    Args:
        outputs: What the step returns.
        closures: Step closures that were called with its results.
        differentiable: Positions of the scalars that have a gradient.
    """
    named = [*_named(outputs), *(place for closure in closures for place in _passed(closure))]
    if named:
        return named[0]
    return differentiable[0] if len(differentiable) == 1 else None


def loss_of(values: Sequence[Value], position: int | None) -> float | None:
    """Return the loss among the values of a step: by default its first scalar, if it has any."""
    if position is not None and position < len(values):
        found = values[position]
        return found if isinstance(found, float) else None
    return next((value for value in values if isinstance(value, float)), None)


def _named(outputs: Any) -> Iterator[int]:
    """Yield the positions of results whose key or attribute is the name of the loss."""
    leaves, _ = pytree.tree_flatten_with_path(outputs)
    for path, leaf in leaves:
        last = path[-1] if path else None
        if getattr(last, "key", getattr(last, "name", None)) == LOSS:
            yield from _position(leaf)


def _passed(closure: Closure) -> Iterator[int]:
    """Yield the position of the result that a closure gets as its argument ``loss``."""
    function, (args, kwargs) = closure
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call itself explains what is wrong
        return
    if LOSS in arguments:
        yield from _position(arguments[LOSS])


def _position(leaf: object) -> Iterator[int]:
    position = getattr(leaf, "position", -1)
    if isinstance(position, int) and position >= 0:
        yield position
