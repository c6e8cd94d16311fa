"""Progress lines of the loops of a program of one's own."""

from __future__ import annotations

import logging
import time

from cstorch.backend import Backend
from cstorch.progress import eval_line, train_line
from cstorch.utils.data.profiler import Profiler
from wsc.core.program import Mode

log = logging.getLogger("waferstream")

LINE_INTERVAL_S = 1.0
"""Least time between two progress lines of a loop."""


class LoopLog:
    """Progress lines of one loop: at activation steps, at most one a second, and at the end."""

    def __init__(self, backend: Backend, profiler: Profiler, num_steps: int) -> None:
        self._backend = backend
        self._profiler = profiler
        self._num_steps = num_steps
        self._last_s = 0.0

    def note(self, mode: Mode, iteration: int, loss: float | None) -> None:
        """Log the progress after an iteration, counted from 1, if its loss is known."""
        now_s = time.monotonic()
        is_due = iteration == self._num_steps or now_s - self._last_s >= LINE_INTERVAL_S
        if loss is not None and is_due and self._backend.logs_progress:
            self._last_s = now_s
            line = self._trained if mode == "train" else self._evaluated
            log.info("%s", line(iteration, loss))

    def _trained(self, iteration: int, loss: float) -> str:
        rates, backend = self._profiler.rate_tracker, self._backend
        left_s = (self._num_steps - iteration) * rates.elapsed_s / iteration
        return train_line(
            step=backend.global_step,
            loss=loss,
            rate=rates.rate,
            global_rate=rates.global_rate,
            loop_remaining_s=left_s,
            remaining_s=left_s,
            emulated_rate=self._profiler.emulated_rate or None,
            machine=backend.cluster_config.machine_name,
            device=backend.backend_type,
        )

    def _evaluated(self, iteration: int, loss: float) -> str:
        rates = self._profiler.rate_tracker
        return eval_line(
            global_step=self._backend.global_step,
            batch=iteration,
            loss=loss,
            rate=rates.rate,
            global_rate=rates.global_rate,
            device=self._backend.backend_type,
        )
