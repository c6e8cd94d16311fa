"""Fit the constants of the start of a job: programming, sending weights, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from validation.families.start_up import ADAMW_STATE_BYTES, major_release, num_parameters
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.core.units import seconds
from waferstream.machine.hardware import StartUpSpec
from waferstream.machine.start_up import (
    checkpoint_bytes,
    checkpoint_ps,
    initial_weights_bytes,
    initial_weights_ps,
)


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


def _predict_initial_weights(row: Row, constants: Constants) -> float:
    return seconds(initial_weights_ps(_spec(constants), num_parameters(row)))


def _predict_checkpoint(row: Row, constants: Constants) -> float:
    return seconds(checkpoint_ps(_spec(constants), num_parameters(row), ADAMW_STATE_BYTES))


def _spec(constants: Constants) -> StartUpSpec:
    changed = {name.partition(".")[2]: round(value) for name, value in constants.items()}
    return StartUpSpec().model_copy(update=changed)


FITS: tuple[Fit, ...] = (
    Fit("start-up initial weights", fit_initial_weights, _predict_initial_weights),
    Fit("start-up checkpoint", fit_checkpoint, _predict_checkpoint),
)
