"""What a program of one's own says on the terminal: log lines, and a report at the end.

``waferstream`` has handlers and observers of its own.
"""

from __future__ import annotations

import logging

from waferstream.core.units import format_ps, format_rate
from waferstream.host.words import in_words
from waferstream.machine.attribution import TimedSteps
from waferstream.machine.start_up import StartUp

log = logging.getLogger("waferstream")


def log_to_terminal() -> None:
    """Write log lines to stderr, unless the program has configured logging.

    A level that the program has set stays.
    """
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.addFilter(in_words("plain"))
        form = "%(asctime)s %(levelname)s: %(message)s"
        handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
        log.addHandler(handler)
        log.propagate = False
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)


def report_text(machine: str, num_steps: int, start_up: StartUp | None, timed: TimedSteps) -> str:
    """Return a few lines about steps of training: their emulated time and its causes.

    Args:
        machine: The device, or the emulated machine.
        num_steps: Steps of training so far.
        start_up: Emulated start-up, None where nothing is emulated.
        timed: Emulated time of the steps.
    """
    lines = [f"Steps of training: {num_steps}, on {machine}"]
    if start_up is not None:
        lines.append(f"Emulated start-up: {start_up}")
    if timed.num_steps:
        mean = timed.mean_step()
        shares = mean.attribution.shares().items()
        causes = ", ".join(f"{cause} {share:.0%}" for cause, share in shares if share >= 0.005)
        lines.append(f"Emulated rate: {format_rate(timed.samples_per_s)} samples/sec")
        lines.append(f"Emulated step: {format_ps(mean.duration_ps)} ({causes})")
    return "\n".join(lines)
