"""Lines about the progress of a loop, in the vendor's format.

The format is that of Model Zoo 2.10, ``trainer/loggers/progress.py``: rates below 1 have three
significant digits; ``TimeRemaining>`` marks a lower bound.
"""

from __future__ import annotations


def train_line(
    *,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    loop_remaining_s: float,
    remaining_s: float,
    emulated_rate: float | None,
    machine: str,
    remaining_is_bound: bool = False,
    device: str = "CSX",
) -> str:
    """Return the line of a training step.

    Args:
        step: Number of the step.
        loss: Its loss.
        rate: Measured throughput in samples per second, smoothed.
        global_rate: Measured throughput of the whole run so far.
        loop_remaining_s: Estimated time left in this loop.
        remaining_s: Estimated time left in the run.
        emulated_rate: Throughput of the emulated machine, in samples per second; None on another
            device, where nothing is emulated.
        machine: Its name, such as ``4 x CS-2``.
        remaining_is_bound: Whether stages without an estimate are missing in ``remaining_s``.
        device: The kind of device.
    """
    relation = ">" if remaining_is_bound else "="
    emulated = f"EmulatedRate={_rate(emulated_rate)} ({machine})" if emulated_rate else None
    return ", ".join(
        filter(
            None,
            (
                f"| Train Device={device}, Step={step}, Loss={loss:.5f}",
                f"Rate={_rate(rate)}",
                f"GlobalRate={_rate(global_rate)}",
                f"LoopTimeRemaining={_duration(loop_remaining_s)}",
                f"TimeRemaining{relation}{_duration(remaining_s)}",
                emulated,
            ),
        )
    )


def eval_line(
    *,
    global_step: int,
    batch: int,
    loss: float,
    rate: float,
    global_rate: float,
    device: str = "CSX",
) -> str:
    """Return the line of an evaluation after ``batch`` batches; arguments as in ``train_line``."""
    return (
        f"| Eval Device={device}, GlobalStep={global_step}, Batch={batch}, Loss={loss:.5f}, "
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
