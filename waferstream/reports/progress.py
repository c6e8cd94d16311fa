"""Progress lines in the vendor's format, and the bar below them.

The format is that of cluster_interface.md, section 4.5, items 7 and 8: rates below 1 with three
significant digits, ``TimeRemaining>`` while some stages of the run have no estimate yet.
"""

from __future__ import annotations

import sys

from tqdm import tqdm


def train_line(
    *,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    loop_remaining_s: float,
    remaining_s: float,
    emulated_rate: float,
    machine: str,
    remaining_is_bound: bool = False,
) -> str:
    """The line of a training step.

    Rates are samples per second: ``rate`` smoothed and ``global_rate`` over the whole run, both
    measured here; ``emulated_rate`` on the emulated clock of ``machine``, such as ``4 x CS-2``.
    ``loop_remaining_s`` is the time left in this loop, ``remaining_s`` in the run;
    ``remaining_is_bound`` says that the run has stages whose time is not known and not counted.
    """
    relation = ">" if remaining_is_bound else "="
    return ", ".join(
        (
            f"| Train Device=CSX, Step={step}, Loss={loss:.5f}",
            f"Rate={_rate(rate)}",
            f"GlobalRate={_rate(global_rate)}",
            f"LoopTimeRemaining={_duration(loop_remaining_s)}",
            f"TimeRemaining{relation}{_duration(remaining_s)}",
            f"EmulatedRate={_rate(emulated_rate)} ({machine})",
        )
    )


def eval_line(*, global_step: int, batch: int, loss: float, rate: float, global_rate: float) -> str:
    """The line of an evaluation after ``batch`` batches; arguments as in ``train_line``."""
    return (
        f"| Eval Device=CSX, GlobalStep={global_step}, Batch={batch}, Loss={loss:.5f}, "
        f"Rate={_rate(rate)}, GlobalRate={_rate(global_rate)}"
    )


def _rate(samples_per_s: float) -> str:
    digits = f"{samples_per_s:.2f}" if samples_per_s >= 1 else f"{samples_per_s:.3g}"
    return f"{digits} samples/sec"


def _duration(duration_s: float) -> str:
    """``1:20:41``; hours count on beyond a day."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


class ProgressBar:
    """A bar on stderr, where that is a terminal; elsewhere nothing, so that logs stay clean."""

    def __init__(self, description: str, total: int, done: int = 0) -> None:
        self._bar = tqdm(
            desc=description,
            total=total,
            initial=done,
            unit="step",
            leave=False,
            dynamic_ncols=True,
            disable=None,
        )

    def advance(self, steps: int = 1) -> None:
        """So many more steps are done."""
        self._bar.update(steps)

    def write(self, line: str) -> None:
        """Print a line above the bar, on stdout, at once."""
        self._bar.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()
