"""The decorators ``step_closure`` and ``checkpoint_closure`` of a user's program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cstorch.current import current_backend
from cstorch.tracing.loop import Loop
from cstorch.tracing.recorder import active_recorder
from wsc.core.errors import ProgramOrderError


def step_closure(function: Callable[..., Any]) -> Callable[..., None]:
    """Queue the call until the step has run; it runs on activation steps only.

    A call inside a trace is repeated for every step.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        recorder = active_recorder.get()
        if recorder is not None:
            recorder.closures.append((function, recorder.hand_out((args, kwargs))))
        else:
            _loop_of(function).queue(function, (args, kwargs))

    return call


def checkpoint_closure(function: Callable[..., Any]) -> Callable[..., None]:
    """Queue the call if this is a checkpoint step; may be called in every iteration."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        loop = _loop_of(function)
        if loop.is_checkpoint_step:
            loop.queue(function, (args, kwargs))

    return call


def _loop_of(function: Callable[..., Any]) -> Loop:
    loop = current_backend().loop
    if loop is None:
        raise ProgramOrderError(
            f"{function.__name__} is a closure and was called outside of an executor loop",
            code="closure-outside-loop",
            remedy="call it in an iteration over cstorch.utils.data.DataExecutor",
        )
    return loop
