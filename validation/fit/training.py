"""Fit the constants of training on a wafer to published throughput."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from validation.families.training import Run, run_of, wafer_of
from validation.fit.calibration import Constants, Fit, least_squares
from validation.published_programs.releases import before_last_change, release_of
from validation.rows.row import Row
from waferstream.core.program.program import ProgramKind
from waferstream.core.units import PS_PER_S, seconds
from waferstream.machine.cost import best_grid, work_by_token
from waferstream.machine.hardware import CS2, CS3
from waferstream.machine.kernels.op_costs import is_attention, op_cycles

_REPETITIONS = 4

_EVERY_WAFER = ("kernel_efficiency", "attention_efficiency", "segment_overhead_ps")
"""Constants that both kinds of system share, under the name of the CS-2."""


def fit_wafers(rows: Sequence[Row]) -> Constants:
    """Fit the constants of both systems together, to rows of software since its last great change.

    The constants decide the layout, and the layout the cycles: hence a few repetitions.
    """
    chosen = [row for row in rows if not before_last_change(release_of(row.text("software")))]
    constants = {f"CS2.{name}": float(getattr(CS2, name)) for name in _EVERY_WAFER}
    constants["CS3.software_speed"] = CS3.software_speed
    for _ in range(_REPETITIONS):
        constants = _improved(constants, chosen)
    return constants


@dataclass(frozen=True)
class _StepParts:
    """A step in parts that do not depend on the fitted constants, in seconds."""

    published_s: float
    kernels_s: float
    """All kernels but attention, at full efficiency."""
    attention_s: float
    """Attention at full efficiency."""
    segments: int
    """Segments of the step."""
    waits_s: float
    """Rest of the simulated step: waits for weights, input and reduce."""
    is_cs3: bool

    def error(self, constants: Constants) -> float:
        """Return the relative error of the step with other constants, in the same layout."""
        kernels_s = (
            self.kernels_s / constants["CS2.kernel_efficiency"]
            + self.attention_s / constants["CS2.attention_efficiency"]
        )
        speed = constants["CS3.software_speed"] if self.is_cs3 else CS2.software_speed
        segments_s = self.segments * constants["CS2.segment_overhead_ps"] / PS_PER_S
        return (kernels_s / speed + segments_s + self.waits_s) / self.published_s - 1


def _improved(constants: Constants, rows: Sequence[Row]) -> Constants:
    """Return the best constants for the layouts and waits that the present ones give."""
    parts = [_step_parts(_run(row, constants), float(row.value)) for row in rows]
    return least_squares(lambda found: [part.error(found) for part in parts], constants)


def _run(row: Row, constants: Constants) -> Run:
    wafer = wafer_of(row)
    changed = {key: constants[f"CS2.{key}"] for key in _EVERY_WAFER}
    changed["segment_overhead_ps"] = round(changed["segment_overhead_ps"])
    if wafer.name == CS3.name:
        changed["software_speed"] = constants["CS3.software_speed"]
    return run_of(row, ProgramKind.TRAIN, wafer.model_copy(update=changed))


def _step_parts(run: Run, samples_per_s: float) -> _StepParts:
    costed = run.simulator.costed(run.batch_size, run.micro_batch_size)
    program, wafer = costed.program, run.simulator.machine.system
    rounds = run.num_rounds
    counts = Counter(
        work
        for segment in program.segments
        for work in work_by_token(segment.work, program)
        if work.kind != "view"
    )
    grid = best_grid(counts, wafer, program.stream_dtype)
    cycles = {"attention": 0.0, "other": 0.0}
    for work, times in counts.items():
        kind = "attention" if is_attention(work) else "other"
        cycles[kind] += times * op_cycles(grid, work, program.stream_dtype).total_cycles
    per_cycle_s = rounds / wafer.clock_hz
    return _StepParts(
        published_s=run.batch_size / samples_per_s,
        kernels_s=cycles["other"] * per_cycle_s,
        attention_s=cycles["attention"] * per_cycle_s,
        segments=rounds * len(program.segments),
        waits_s=run.step_s - rounds * seconds(sum(cost.total_ps for cost in costed.costs)),
        is_cs3=wafer.name == CS3.name,
    )


def _predict(row: Row, constants: Constants) -> float:
    return _run(row, constants).samples_per_s


FITS: tuple[Fit, ...] = (Fit("training", fit_wafers, _predict),)
