"""Functions that run on the user's side after a step, with tensors that have values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cstorch.backend import current_backend
from cstorch.loop import Loop
from cstorch.trace import active_trace


def step_closure(function: Callable[..., Any]) -> Callable[..., None]:
    """Queue the call until the step has run; it runs on activation steps only.

    Called inside a trace it is repeated for every step.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        trace = active_trace.get()
        if trace is not None:
            trace.closures.append((function, trace.hand_out((args, kwargs))))
        else:
            _loop(function).queue(function, (args, kwargs))

    return call


def checkpoint_closure(function: Callable[..., Any]) -> Callable[..., None]:
    """Queue the call if this is a checkpoint step; may be called in every iteration."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        loop = _loop(function)
        if loop.is_checkpoint_step:
            loop.queue(function, (args, kwargs))

    return call


def _loop(function: Callable[..., Any]) -> Loop:
    loop = current_backend().loop
    if loop is None:
        raise RuntimeError(
            f"{function.__name__} is a closure and was called outside of an executor loop"
        )
    return loop
