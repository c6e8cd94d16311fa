"""Functions that run once per process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def call_once() -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Return a decorator: the first call runs the function, later calls return its result."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        results: list[Result] = []

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            if not results:
                results.append(function(*args, **kwargs))
            return results[0]

        return call

    return decorate
