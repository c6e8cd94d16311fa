"""Fit the constants of inference on a wafer to published rates of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from validation.families.inference import decode_row_s, prefill_row_s
from validation.families.service import service_row_s
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.machine.regions import FIRST_SERVICE, PE_COSTS, SERVICE, PeCosts, ServiceSpec

_GENERATIONS: Mapping[str, ServiceSpec] = {
    "FIRST_SERVICE.kernel_factor": FIRST_SERVICE,
    "SERVICE.kernel_factor": SERVICE,
}


def fit_prefill(rows: Sequence[Row]) -> Constants:
    """Fit the cycles to issue a mapped column to prompt tokens per second.

    Prefill and decode depend on both fitted costs of a PE, each mostly on one of them. Fitted
    alternately, they converge to the values in use.
    """
    return _fit_times(
        "column_cycles",
        PE_COSTS.column_cycles,
        [(row, row.count("seq_len") / float(row.value)) for row in rows],
        lambda row, cycles: prefill_row_s(row, _costs(column_cycles=cycles)),
    )


def fit_decode(rows: Sequence[Row]) -> Constants:
    """Fit the cycles of a function in software to tokens per second."""
    return _fit_times(
        "function_cycles",
        PE_COSTS.function_cycles,
        [(row, 1 / float(row.value)) for row in rows],
        lambda row, cycles: decode_row_s(row, _costs(function_cycles=cycles)),
    )


def fit_service(rows: Sequence[Row]) -> Constants:
    """Fit kernels of both generations and the acceptance of drafts to tokens per second."""
    measured = [(row, 1 / float(row.value)) for row in rows]
    now = {name: preset.kernel_factor for name, preset in _GENERATIONS.items()}

    def errors(constants: Constants) -> list[float]:
        accepted = constants["acceptance"]
        specs = [
            preset.model_copy(update={"kernel_factor": constants[name], "acceptance": accepted})
            for name, preset in _GENERATIONS.items()
        ]
        return [service_row_s(row, specs) / s - 1 for row, s in measured]

    return least_squares(errors, {**now, "acceptance": SERVICE.acceptance})


def _fit_times(
    name: str,
    now: float,
    measured: Sequence[tuple[Row, float]],
    predict_s: Callable[[Row, float], float],
) -> Constants:
    """Fit one constant to (row, seconds) by the relative errors of the times."""
    return least_squares(
        lambda constants: [predict_s(row, constants[name]) / s - 1 for row, s in measured],
        {name: now},
    )


def _costs(**changed: float) -> PeCosts:
    return PeCosts(**{**PE_COSTS.model_dump(), **changed})


FITS: tuple[Fit, ...] = (
    Fit("prefill", fit_prefill),
    Fit("decode", fit_decode),
    Fit("inference service", fit_service),
)
