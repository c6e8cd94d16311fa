"""How the constants of set-up times follow from calibration rows.

Each constant has rows of its own. Programming is a fixed time: the mean. Sending and saving are a
start plus bytes over a bandwidth: the bandwidth that makes the relative errors' squares least.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from timing.hardware import StartUpSpec
from timing.start_up import checkpoint_bytes, initial_weights_bytes
from validation.rows.row import Row
from validation.rows.row_words import major_release, num_parameters
from wsc.core.units import PS_PER_S, seconds

ADAMW_STATE_BYTES = 8

_PROGRAMMING = {
    "CS-2": "CS2.programming_ps",
    "CS-3": "CS3.programming_ps",
}


def fit_programming(rows: Sequence[Row]) -> dict[str, float]:
    """The time of each system that has rows."""
    times_s = {system: _values(rows, system) for system in _PROGRAMMING}
    return {
        _PROGRAMMING[system]: PS_PER_S * fmean(values)
        for system, values in times_s.items()
        if values
    }


def fit_initial_weights(rows: Sequence[Row]) -> dict[str, float]:
    """What is left after the start of the processes that send; release 1 is another generation."""
    start_s = seconds(StartUpSpec().transfer_start_ps)
    pairs = [
        (initial_weights_bytes(num_parameters(row)), float(row.value))
        for row in rows
        if major_release(row) > 1
    ]
    return {"StartUpSpec.transfer_bandwidth_bytes_per_s": _bandwidth(pairs, start_s)}


def fit_checkpoint(rows: Sequence[Row]) -> dict[str, float]:
    """Weights and the two moments of AdamW."""
    pairs = [
        (checkpoint_bytes(num_parameters(row), ADAMW_STATE_BYTES), float(row.value)) for row in rows
    ]
    return {"StartUpSpec.storage_bandwidth_bytes_per_s": _bandwidth(pairs, 0.0)}


def _bandwidth(pairs: Sequence[tuple[int, float]], start_s: float) -> float:
    """Bytes per second from (bytes, seconds), where ``start_s`` passes before the first byte.

    Least squares of (start + bytes x) / seconds - 1 over x, the inverse of the bandwidth.
    """
    slopes = [num_bytes / time_s for num_bytes, time_s in pairs]
    rests = [1 - start_s / time_s for _, time_s in pairs]
    return sum(slope**2 for slope in slopes) / sum(
        slope * rest for slope, rest in zip(slopes, rests, strict=True)
    )


def _values(rows: Sequence[Row], system: str) -> list[float]:
    return [float(row.value) for row in rows if row.text("system").startswith(system)]
