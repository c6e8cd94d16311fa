"""Errors as a program shows them: with its own lines, without those of the tracer and of torch."""

from __future__ import annotations

import functools
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from waferstream.compiler.capture.capture_errors import is_library
from waferstream.core.errors import WaferStreamError
from waferstream.host.tracebacks import VARIABLE, shows_all

P = ParamSpec("P")
T = TypeVar("T")
_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

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
            raise error.with_traceback(_own_lines(error.__cause__ or error)) from None

    return call


def _own_lines(error: BaseException) -> TracebackType | None:
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


def show_briefly() -> None:
    """Let a program that such an error ends print what ``waferstream exec`` would."""
    sys.excepthook = functools.partial(_show, sys.excepthook)


def _show(
    before: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error of this project; let any other be printed as before."""
    if not isinstance(error, WaferStreamError) or shows_all():
        before(kind, error, trace)
        return
    lines = traceback.format_tb(_own_lines(error.with_traceback(trace)))
    hint = f"{VARIABLE}=1 shows all lines of the traceback"
    print(f"{''.join(lines)}Error: {error}\n{hint}", file=sys.stderr)
