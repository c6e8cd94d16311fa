"""Errors of a traced step as a program shows them: with its own lines, without the tracer's."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from waferstream.compiler.capture.capture_errors import is_library
from waferstream.core.errors import WaferStreamError
from waferstream.host.tracebacks import VARIABLE, shows_all

P = ParamSpec("P")
T = TypeVar("T")

_PYTHON = sysconfig.get_path("stdlib")


def with_brief_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let an error of this project that a function raises have the program's own lines only."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except WaferStreamError as error:
            if shows_all():
                raise
            error.add_note(f"{VARIABLE}=1 shows all lines of the tracer")
            raise error.with_traceback(own_lines(error.__cause__ or error)) from None

    return call


def own_lines(error: BaseException) -> TracebackType | None:
    """Return the part of a traceback that lies in the program."""
    own: TracebackType | None = None
    for entry in reversed(list(_entries(error.__traceback__))):
        if _is_own(entry.tb_frame.f_code.co_filename):
            own = TracebackType(own, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return own


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_own(path: str) -> bool:
    """Return whether a file is part of the program, or of a library of models that it uses."""
    is_python = path.startswith(_PYTHON) and "site-packages" not in path
    return not is_python and not is_library(path)
