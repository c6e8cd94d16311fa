"""Progress of a loop: lines, for a program of one's own, and a bar on a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cstorch.loop.profiler import Profiler
from cstorch.session.session import Session
from waferstream.core.events import EvalProgress, TrainProgress
from waferstream.core.program.program import ProgramKind
from waferstream.host.terminal import progress_bar, shows_bars

if TYPE_CHECKING:
    from waferstream.host.bars import Live

log = logging.getLogger("waferstream")

LINE_INTERVAL_S = 1.0
"""Least time between two progress lines of a loop."""


class LoopLog:
    """Progress of one loop: lines at activation steps, at most one a second, and at the end.

    Where the terminal shows bars, a bar follows the steps (``ProgramSettings.bars``).
    """

    def __init__(self, session: Session, profiler: Profiler, num_steps: int) -> None:
        self._session = session
        self._profiler = profiler
        self._num_steps = num_steps
        self._last_s = 0.0
        self._bar: Live | None = None

    def begin(self, kind: ProgramKind, look: Callable[[], int]) -> None:
        """Show the bar of the loop, unless it is shown already.

        Args:
            kind: What the loop does.
            look: Returns the newest iteration that has begun, counted from 1, in any thread.
        """
        if self._bar is None and kind in self._session.settings.bars and shows_bars():
            word = kind.verb.capitalize()
            self._bar = progress_bar(word, 1, self._num_steps, look)

    def close(self) -> None:
        """Remove the bar. Idempotent."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def note(self, kind: ProgramKind, iteration: int, loss: float | None) -> None:
        """Log the progress after an iteration, counted from 1, if its loss is known."""
        now_s = time.monotonic()
        is_due = iteration == self._num_steps or now_s - self._last_s >= LINE_INTERVAL_S
        if loss is not None and is_due and self._session.settings.logs_progress:
            self._last_s = now_s
            progress = self._trained if kind.updates else self._evaluated
            log.info(progress(iteration, loss))

    def _trained(self, iteration: int, loss: float) -> TrainProgress:
        rates, session = self._profiler.rate_tracker, self._session
        left_s = (self._num_steps - iteration) * rates.elapsed_s / iteration
        return TrainProgress(
            step=session.global_step,
            loss=loss,
            rate=rates.rate,
            global_rate=rates.global_rate,
            loop_remaining_s=left_s,
            remaining_s=left_s,
            emulated_rate=self._profiler.emulated_rate or None,
            machine=session.settings.cluster_config.machine_name,
            device=session.settings.backend_type,
        )

    def _evaluated(self, iteration: int, loss: float) -> EvalProgress:
        rates = self._profiler.rate_tracker
        return EvalProgress(
            global_step=self._session.global_step,
            batch=iteration,
            loss=loss,
            rate=rates.rate,
            global_rate=rates.global_rate,
            device=self._session.settings.backend_type,
        )
