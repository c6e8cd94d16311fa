"""Progress of a run: lines in the vendor's format, a bar, and event files for TensorBoard.

The format of the lines is that of cluster_interface.md, section 4.5, items 7 and 8: rates below 1
have three significant digits; ``TimeRemaining>`` marks a lower bound.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar
from tqdm import tqdm

from wsc.core.files import naming


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
    """Return the line of a training step.

    Args:
        step: Number of the step.
        loss: Its loss.
        rate: Measured throughput in samples per second, smoothed.
        global_rate: Measured throughput of the whole run so far.
        loop_remaining_s: Estimated time left in this loop.
        remaining_s: Estimated time left in the run.
        emulated_rate: Throughput of the emulated machine, in samples per second.
        machine: Its name, such as ``4 x CS-2``.
        remaining_is_bound: Whether stages without an estimate are missing in ``remaining_s``.
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
    """Return the line of an evaluation after ``batch`` batches; arguments as in ``train_line``."""
    return (
        f"| Eval Device=CSX, GlobalStep={global_step}, Batch={batch}, Loss={loss:.5f}, "
        f"Rate={_rate(rate)}, GlobalRate={_rate(global_rate)}"
    )


def _rate(samples_per_s: float) -> str:
    digits = f"{samples_per_s:.2f}" if samples_per_s >= 1 else f"{samples_per_s:.3g}"
    return f"{digits} samples/sec"


def _duration(duration_s: float) -> str:
    """Return hours, minutes and seconds, ``1:20:41``; hours may exceed a day."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


class ProgressBar:
    """Progress bar on stderr if that is a terminal; otherwise no bar, so that logs stay clean."""

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
        """Advance the bar by some steps."""
        self._bar.update(steps)

    def write(self, line: str) -> None:
        """Print a line on stdout, above the bar, and flush it."""
        self._bar.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class EventWriter:
    """Event file in a folder, to which scalars are appended; an OSError names the folder.

    Recorded scalars are in the file after ``flush`` or ``close``.
    """

    # tensorboardX's SummaryWriter writes in a thread, whose errors (a full disk) are never raised

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(folder / "events"))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Record one value; a name with a slash has a group, as in ``train/loss``."""
        with naming(self._folder):
            event = Event(wall_time=time.time(), step=step, summary=scalar(name, value))
            self._writer.write_event(event)

    def flush(self) -> None:
        """Write the recorded scalars to the file."""
        with naming(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write the recorded scalars and close the file."""
        with naming(self._folder):
            self._writer.close()
