"""The decorators ``step_closure`` and ``checkpoint_closure`` of a user's program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cstorch.current import current_session
from cstorch.recording.loop import Loop
from cstorch.recording.recorder import active_recorder
from cstorch.session.session import Session
from waferstream.core.errors import ProgramOrderError


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
    """Queue the call if this is a checkpoint step; may be called in every iteration.

    Before the first step of a program it runs at once, for an initial checkpoint.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        if _is_initial(current_session()):
            function(*args, **kwargs)
            return
        loop = _loop_of(function)
        if loop.is_checkpoint_step:
            loop.queue(function, (args, kwargs))

    return call


def _is_initial(session: Session) -> bool:
    """Return whether a model is compiled and no step of it has run yet."""
    is_ready = session.model.module is not None and session.settings.is_e2e_execution
    return is_ready and session.loop is None and session.execution.cluster is None


def _loop_of(function: Callable[..., Any]) -> Loop:
    loop = current_session().loop
    if loop is None:
        raise ProgramOrderError(
            f"{function.__name__} is a closure and was called outside of an executor loop",
            code="closure-outside-loop",
            remedy="call it in an iteration over cstorch.utils.data.DataExecutor",
        )
    return loop
