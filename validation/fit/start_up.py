"""Fit the constants of the start of a job: programming, sending weights, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from validation.families.start_up import ADAMW_STATE_BYTES, major_release, num_parameters
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.core.units import PS_PER_S, seconds
from waferstream.machine.hardware import StartUpSpec
from waferstream.machine.start_up import checkpoint_bytes, initial_weights_bytes

_PROGRAMMING = {"CS-2": "CS2.programming_ps", "CS-3": "CS3.programming_ps"}


def fit_programming(rows: Sequence[Row]) -> Constants:
    """Fit the time to program each system that has rows: the mean of its rows."""
    times_s = {system: _values(rows, system) for system in _PROGRAMMING}
    return {
        _PROGRAMMING[system]: PS_PER_S * fmean(values)
        for system, values in times_s.items()
        if values
    }


def fit_initial_weights(rows: Sequence[Row]) -> Constants:
    """Fit the bandwidth of sending; rows of release 1 are left out, it is another generation."""
    sent = [
        (initial_weights_bytes(num_parameters(row)), float(row.value))
        for row in rows
        if major_release(row) > 1
    ]
    spec = StartUpSpec()
    return _fit_bandwidth(
        "transfer_bandwidth_bytes_per_s",
        spec.transfer_bandwidth_bytes_per_s,
        sent,
        seconds(spec.transfer_start_ps),
    )


def fit_checkpoint(rows: Sequence[Row]) -> Constants:
    """Fit the bandwidth of storage to checkpoints: weights and two moments of AdamW."""
    saved = [
        (checkpoint_bytes(num_parameters(row), ADAMW_STATE_BYTES), float(row.value)) for row in rows
    ]
    name = "storage_bandwidth_bytes_per_s"
    return _fit_bandwidth(name, StartUpSpec().storage_bandwidth_bytes_per_s, saved, 0.0)


def _fit_bandwidth(
    name: str, now: float, measured: Sequence[tuple[int, float]], start_s: float
) -> Constants:
    """Fit bytes per second to (bytes, seconds); ``start_s`` passes before the first byte."""
    name = f"StartUpSpec.{name}"
    return least_squares(
        lambda constants: [
            (start_s + num_bytes / constants[name]) / time_s - 1 for num_bytes, time_s in measured
        ],
        {name: now},
    )


def _values(rows: Sequence[Row], system: str) -> list[float]:
    return [float(row.value) for row in rows if row.text("system").startswith(system)]


FITS: tuple[Fit, ...] = (
    Fit("start-up programming", fit_programming),
    Fit("start-up initial weights", fit_initial_weights),
    Fit("start-up checkpoint", fit_checkpoint),
)
