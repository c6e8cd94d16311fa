"""Fit the constants of wafers: kernels, start-up, inference and training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

from baselines.wafer_inference import PE_COSTS, PeCosts, ServiceSpec
from timing.cost import best_grid
from timing.hardware import CS2, CS3, StartUpSpec, WaferSpec
from timing.kernels.op_costs import op_cycles
from timing.start_up import checkpoint_bytes, initial_weights_bytes
from validation.families.inference import decode_row_s, prefill_row_s, service_row_s
from validation.families.start_up import ADAMW_STATE_BYTES, major_release, num_parameters
from validation.families.training import Run, run_of
from validation.fit.calibration import Constants, Fit, least_squares
from validation.published_programs.products import ProgramSpec, descriptor_gemm, single_pe_gemv
from validation.published_programs.releases import release_name, release_of
from validation.rows.kernels import dtype_of, fabric_of
from validation.rows.row import Row
from wsc.core.errors import ConfigError
from wsc.core.units import PS_PER_S, seconds

_REPETITIONS = 4
_PROGRAMMING = {"CS-2": "CS2.programming_ps", "CS-3": "CS3.programming_ps"}


def fit_gemv(rows: Sequence[Row]) -> Constants:
    """Fit a line over the columns to the cycles beyond the elements of products on one PE."""
    maps = [row for row in rows if row.text("workload").startswith("single-tile")]
    columns = [row.count("K") for row in maps]
    if len(set(columns)) < 2:
        raise ConfigError(
            "a line needs two points",
            code="too-few-sizes",
            where="GEMV",
            rule="single-tile rows of at least two sizes",
        )
    line = linear_regression(columns, [float(row.value) - _elements(row) for row in maps])
    return {
        "ProgramSpec.map_column_cycles": line.slope,
        "ProgramSpec.map_start_cycles": line.intercept,
    }


def fit_gemm(rows: Sequence[Row]) -> Constants:
    """Fit the cycles per element of products beyond their set-up."""
    costs = [cost for row in rows if (cost := _per_element(row)) is not None]
    if not costs:
        raise ConfigError(
            "there is no product to fit to",
            code="no-calibration-row",
            where="GEMM",
            rule="a row of the GEMM program",
        )
    return {"ProgramSpec.strided_fma_cycles": fmean(costs)}


def _per_element(row: Row) -> float | None:
    if "DSD kernels" not in row.text("algorithm"):
        return None
    sides = (row.count("grid_x"), row.count("grid_y"))
    rows, inner, columns = (row.count(name) for name in ("M", "K", "N"))
    unit = ProgramSpec(strided_fma_cycles=1.0)
    cost = descriptor_gemm(fabric_of(row), sides, rows, inner, columns, unit)
    return (float(row.value) - cost.setup) / (cost.compute + cost.memory)


def _elements(row: Row) -> float:
    return single_pe_gemv(fabric_of(row), row.count("M"), row.count("K"), dtype_of(row)).compute


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
    """Fit the time of a layer in the service, relative to regions, to tokens per second."""
    return _fit_times(
        "kernel_factor",
        ServiceSpec().kernel_factor,
        [(row, 1 / float(row.value)) for row in rows],
        lambda row, factor: service_row_s(row, ServiceSpec(kernel_factor=factor)),
    )


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


def fit_wafer(rows: Sequence[Row]) -> Constants:
    """Fit both efficiencies and the segment overhead of a CS-2 to rows without a stated release.

    The constants decide the layout, and the layout the cycles: hence a few repetitions.
    """
    chosen = [r for r in rows if r.text("system") == CS2.name and not r.text("software")]
    wafer = CS2
    for _ in range(_REPETITIONS):
        wafer = _improved(wafer, chosen)
    return {
        "CS2.kernel_efficiency": wafer.kernel_efficiency,
        "CS2.attention_efficiency": wafer.attention_efficiency,
        "CS2.segment_overhead_ps": wafer.segment_overhead_ps,
    }


def fit_releases(rows: Sequence[Row]) -> Constants:
    """Fit the speed of each release that has rows: the mean of published over predicted."""
    speeds: dict[str, list[float]] = {}
    for row in rows:
        release = release_of(row.text("software"))
        if release is not None:
            wafer = CS2 if row.text("system") == CS2.name else CS3
            base = wafer.model_copy(update={"software_speed": 1.0})
            predicted = run_of(row, "train", base).samples_per_s
            name = f"ReleaseSpeeds.{release_name(wafer.name, release)}"
            speeds.setdefault(name, []).append(float(row.value) / predicted)
    return {name: fmean(found) for name, found in speeds.items()}


@dataclass(frozen=True)
class _StepParts:
    """A step in parts that do not depend on the fitted constants, in seconds."""

    published_s: float
    kernels_s: float
    """All kernels but attention, at full efficiency."""
    attention_s: float
    """Attention at full efficiency."""
    segments: float
    """Segments of the step, divided by the software's speed."""
    waits_s: float
    """Rest of the simulated step: waits for weights, input and reduce."""

    def error(self, constants: Constants) -> float:
        """Return the relative error of the step with other constants, in the same layout."""
        predicted_s = (
            self.kernels_s / constants["kernel_efficiency"]
            + self.attention_s / constants["attention_efficiency"]
            + self.segments * constants["segment_overhead_ps"] / PS_PER_S
            + self.waits_s
        )
        return predicted_s / self.published_s - 1


def _improved(wafer: WaferSpec, rows: Sequence[Row]) -> WaferSpec:
    """Return the wafer with the best constants for its present layouts and waits."""
    parts = [_step_parts(run_of(row, "train", wafer), float(row.value)) for row in rows]
    names = ("kernel_efficiency", "attention_efficiency", "segment_overhead_ps")
    found = least_squares(
        lambda constants: [part.error(constants) for part in parts],
        {name: float(getattr(wafer, name)) for name in names},
    )
    return wafer.model_copy(
        update=found | {"segment_overhead_ps": round(found["segment_overhead_ps"])}
    )


def _step_parts(run: Run, samples_per_s: float) -> _StepParts:
    costed = run.simulator.costed(run.batch_size, run.micro_batch_size)
    program, wafer = costed.program, run.simulator.machine.system
    rounds = run.num_rounds
    counts = Counter(w for s in program.segments for w in s.work if w.kind != "view")
    grid = best_grid(counts, wafer, program.stream_dtype)
    cycles = {"attention": 0.0, "other": 0.0}
    for work, times in counts.items():
        kind = "attention" if work.kind == "attention" else "other"
        cycles[kind] += times * op_cycles(grid, work, program.stream_dtype).total_cycles
    per_cycle_s = rounds / wafer.clock_hz / wafer.software_speed
    return _StepParts(
        published_s=run.batch_size / samples_per_s,
        kernels_s=cycles["other"] * per_cycle_s,
        attention_s=cycles["attention"] * per_cycle_s,
        segments=rounds * len(program.segments) / wafer.software_speed,
        waits_s=run.step_s - rounds * seconds(sum(cost.total_ps for cost in costed.costs)),
    )


FITS: tuple[Fit, ...] = (
    Fit("GEMV", fit_gemv),
    Fit("GEMM", fit_gemm),
    Fit("prefill", fit_prefill),
    Fit("decode", fit_decode),
    Fit("inference service", fit_service),
    Fit("training CS-2", fit_wafer),
    Fit("training", fit_releases),
    Fit("start-up programming", fit_programming),
    Fit("start-up initial weights", fit_initial_weights),
    Fit("start-up checkpoint", fit_checkpoint),
)
