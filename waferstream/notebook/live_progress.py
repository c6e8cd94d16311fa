"""The progress of a training below its cell: what it does, its loss, and both rates, live."""

from __future__ import annotations

import html
import logging
import math
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from IPython.display import publish_display_data

from waferstream.core.events import TrainProgress
from waferstream.core.units import format_rate

_MOST_POINTS = 400
_WIDTH, _HEIGHT = 480, 120


@contextmanager
def shown_progress() -> Iterator[None]:
    """Show the progress of the training in the block instead of its log lines."""
    log = logging.getLogger("waferstream")
    shown, before = LiveProgress(), (log.level, log.propagate, log.handlers)
    log.setLevel(logging.INFO)
    log.propagate, log.handlers = False, [shown]
    try:
        yield
        shown.end("Finished")
    except KeyboardInterrupt:
        shown.end("Interrupted")
        raise
    except BaseException:
        shown.end("Failed")
        raise
    finally:
        level, log.propagate, log.handlers = before
        log.setLevel(level)


class LiveProgress(logging.Handler):
    """One output of a cell, which follows what the log says. Warnings are printed beside it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._display = secrets.token_hex(8)
        self._is_new = True
        self._state = ""
        self._progress: TrainProgress | None = None
        self._losses: list[tuple[int, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            print(f"{record.levelname}: {record.getMessage()}", file=sys.stderr)
            return
        if isinstance(record.msg, TrainProgress):
            self._progress = record.msg
            self._losses.append((record.msg.step, record.msg.loss))
            if len(self._losses) > _MOST_POINTS:
                del self._losses[1::2]
            self._show("Training")
        else:
            self._show(record.getMessage())

    def end(self, state: str) -> None:
        """Show how the program has ended."""
        self._show(state)

    def _show(self, state: str) -> None:
        self._state = state
        content = {"text/plain": self._text(), "text/html": self._page()}
        is_update, self._is_new = not self._is_new, False
        place = {"display_id": self._display}
        publish_display_data(content, transient=place, update=is_update)  # type: ignore[no-untyped-call]

    def _text(self) -> str:
        return " | ".join([self._state, *self._numbers()])

    def _numbers(self) -> list[str]:
        """Return what is known of the training, in words."""
        now = self._progress
        if now is None:
            return []
        numbers = [
            f"step {now.step}",
            f"loss {now.loss:.5g}",
            f"{format_rate(now.rate)} samples/s measured",
        ]
        if now.emulated_rate:
            numbers.append(f"{format_rate(now.emulated_rate)} samples/s on {now.machine}")
        return numbers

    def _page(self) -> str:
        words = "".join(f"<td>{html.escape(word)}</td>" for word in self._numbers())
        head = f"<table><tr><td><b>{html.escape(self._state)}</b></td>{words}</tr></table>"
        return head + _curve(self._losses)


def _curve(losses: list[tuple[int, float]]) -> str:
    """Return a drawing of losses over steps; nothing before there are two."""
    points = [(step, loss) for step, loss in losses if math.isfinite(loss)]
    if len(points) < 2:
        return ""
    steps, values = zip(*points, strict=True)
    width, height = max(steps) - min(steps) or 1, max(values) - min(values) or 1.0
    drawn = " ".join(
        f"{(step - min(steps)) / width * _WIDTH:.1f},{(max(values) - loss) / height * _HEIGHT:.1f}"
        for step, loss in points
    )
    return (
        f'<svg viewBox="-4 -4 {_WIDTH + 8} {_HEIGHT + 8}" width="{_WIDTH}" role="img" '
        f'aria-label="loss from {values[0]:.5g} to {values[-1]:.5g}">'
        f'<polyline points="{drawn}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
