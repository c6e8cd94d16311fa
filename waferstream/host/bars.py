"""Lines that stay at the end of a terminal, below everything that is printed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class _ErrorConsole(Console):
    """Standard error, whose cursor stays: a process that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        return False


@cache
def _console() -> Console:
    return _ErrorConsole(stderr=True, soft_wrap=True, highlight=False)


class Live(Progress):
    """What is in progress; what the program prints, and logs to the root logger, goes above it.

    Output that goes elsewhere than to the terminal stays as it is.
    """

    before: Callable[[], Any] = int
    """What is called before it is drawn, in any thread."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self._moved: list[tuple[Any, Any]] = []
        super().__init__(
            *columns,
            console=_console(),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        )

    def start(self) -> None:
        """Begin to draw."""
        streams = (sys.stdout, sys.stderr)
        super().start()
        for handler in logging.root.handlers:
            if (stream := getattr(handler, "stream", None)) in streams:
                self._moved.append((handler, stream))
                handler.stream = FileProxy(self.console, stream)  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Remove what is drawn. Idempotent."""
        for handler, stream in self._moved:
            handler.stream = stream
        self._moved.clear()
        super().stop()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield what is drawn."""
        self.before()
        yield from super().get_renderables()


def spinner(text: str) -> Live:
    """Return a spinner with a text and the time so far, which a block shows."""
    live = Live(SpinnerColumn("line"), TextColumn(text), TimeElapsedColumn())
    live.add_task("")
    return live


def bar_of_steps(description: str, first: int, last: int, look: Callable[[], int]) -> Live:
    """Show a bar that follows the newest step that has begun, which ``look`` tells in any thread.

    The steps before it are done; ``stop`` removes the bar.
    """
    live = Live(
        TextColumn("{task.description}: {task.percentage:3.0f}%"),
        *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()),
    )
    task = live.add_task(description, start=False, total=last - first + 1)

    def follow() -> None:
        if (newest := look()) >= first:
            live.start_task(task)  # the time counts from here
            live.update(task, completed=newest - first)

    live.before = follow
    live.start()
    return live
