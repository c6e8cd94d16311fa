"""Fit the constants of training on a wafer to published throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from validation.families.training import Run, run_of, wafer_of
from validation.fit.calibration import Constants, Fit, least_squares
from validation.published_programs.releases import release_name, release_of
from validation.rows.row import Row
from waferstream.core.program.program import ProgramKind
from waferstream.core.units import PS_PER_S, seconds
from waferstream.machine.cost import best_grid
from waferstream.machine.hardware import CS2, CS3, WaferSpec
from waferstream.machine.kernels.op_costs import op_cycles

_REPETITIONS = 4


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
            predicted = run_of(row, ProgramKind.TRAIN, base).samples_per_s
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
    parts = [_step_parts(run_of(row, ProgramKind.TRAIN, wafer), float(row.value)) for row in rows]
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


def _predict_wafer(row: Row, constants: Constants) -> float:
    changed = {name.partition(".")[2]: value for name, value in constants.items()}
    changed["segment_overhead_ps"] = round(changed["segment_overhead_ps"])
    wafer = wafer_of(row).model_copy(update=changed)
    return run_of(row, ProgramKind.TRAIN, wafer).samples_per_s


def _predict_release(row: Row, constants: Constants) -> float:
    wafer, release = wafer_of(row), release_of(row.text("software"))
    if release is not None:
        speed = constants[f"ReleaseSpeeds.{release_name(wafer.name, release)}"]
        wafer = wafer.model_copy(update={"software_speed": speed})
    return run_of(row, ProgramKind.TRAIN, wafer).samples_per_s


FITS: tuple[Fit, ...] = (
    Fit("training CS-2", fit_wafer, _predict_wafer),
    Fit("training", fit_releases, _predict_release),
)
