"""Errors of this project that end a program: its own lines and the message, no other traceback."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

from cstorch.tracing.brief_errors import own_lines
from waferstream.core.errors import WaferStreamError
from waferstream.host.tracebacks import VARIABLE, shows_all

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


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
    lines = traceback.format_tb(own_lines(error.with_traceback(trace)))
    hint = f"{VARIABLE}=1 shows all lines of the traceback"
    print(f"{''.join(lines)}Error: {error}\n{hint}", file=sys.stderr)
