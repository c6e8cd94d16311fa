"""How the constants of inference follow from calibration rows.

Times are affine in each constant, so one that is fitted alone has a closed form: least squares of
the relative errors of the times. Prefill and decode depend on both fitted costs of a PE, each
mostly on one of them; fitted in turns they settle where the emulator has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baselines.wafer_inference import PE_COSTS, PeCosts, ServiceSpec
from validation.rows.cells import count
from validation.rows.inference_rows import decode_row_s, prefill_row_s, service_row_s
from validation.rows.row import Row


def fit_prefill(rows: Sequence[Row]) -> dict[str, float]:
    """Cycles to issue a mapped column, from prompt tokens per second."""

    def seconds(row: Row, column_cycles: float) -> float:
        return prefill_row_s(row, _costs(column_cycles=column_cycles))

    measured_s = [count(row, "seq_len") / float(row.value) for row in rows]
    return {"column_cycles": _least_squares(seconds, rows, measured_s)}


def fit_decode(rows: Sequence[Row]) -> dict[str, float]:
    """Cycles of a function done in software, from tokens per second."""

    def seconds(row: Row, function_cycles: float) -> float:
        return decode_row_s(row, _costs(function_cycles=function_cycles))

    measured_s = [1 / float(row.value) for row in rows]
    return {"function_cycles": _least_squares(seconds, rows, measured_s)}


def fit_service(rows: Sequence[Row]) -> dict[str, float]:
    """What a layer takes longer in the service than on regions, from tokens per second."""

    def seconds(row: Row, kernel_factor: float) -> float:
        return service_row_s(row, ServiceSpec(kernel_factor=kernel_factor))

    measured_s = [1 / float(row.value) for row in rows]
    return {"kernel_factor": _least_squares(seconds, rows, measured_s)}


def _costs(**changed: float) -> PeCosts:
    return PeCosts(**{**PE_COSTS.model_dump(), **changed})


def _least_squares(
    seconds: Callable[[Row, float], float], rows: Sequence[Row], measured_s: Sequence[float]
) -> float:
    """The constant for which the relative errors of ``seconds``, affine in it, are least.

    The line is drawn through the constants 1 and 2, which every constant here may be.
    """
    projection = squares = 0.0
    for row, measured in zip(rows, measured_s, strict=True):
        slope = (seconds(row, 2.0) - seconds(row, 1.0)) / measured
        at_zero = seconds(row, 1.0) / measured - slope
        projection += slope * (1 - at_zero)
        squares += slope * slope
    return projection / squares
