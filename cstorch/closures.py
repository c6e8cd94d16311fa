"""Functions that run on the user's side after a step, with tensors that have values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cstorch.backend import current_backend
from cstorch.trace import active_trace
from cstorch.utils.data.data_executor import DataExecutor


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
            _executor(function).queue(function, (args, kwargs))

    return call


def checkpoint_closure(function: Callable[..., Any]) -> Callable[..., None]:
    """Queue the call if this is a checkpoint step; may be called in every iteration."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        executor = _executor(function)
        if executor.is_checkpoint_step:
            executor.queue(function, (args, kwargs))

    return call


def _executor(function: Callable[..., Any]) -> DataExecutor:
    executor = current_backend().executor
    if executor is None:
        raise RuntimeError(
            f"{function.__name__} is a closure and was called outside of an executor loop"
        )
    return executor
