"""How the constants of training throughput follow from calibration rows.

A step is rounds of segments, and a segment takes ``kernels / kernel_efficiency + attention /
attention_efficiency + overhead``: linear in the inverse efficiencies and the overhead, so least
squares of the relative errors has a closed solution. What a step takes beyond its segments (waits)
is kept as simulated, and so is the layout, which the efficiencies decide: hence a few repetitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from timing.cost import best_grid
from timing.hardware import CS2, CS3, WaferSpec
from timing.kernels.op_costs import op_cycles
from validation.families.training_runs import Run, run_of
from validation.published_programs.releases import release_name, release_of
from validation.rows.row import Row
from wsc.core.units import PS_PER_S, seconds

REPETITIONS = 4


def fit_wafer(rows: Sequence[Row]) -> dict[str, float]:
    """Both efficiencies and the overhead of a CS-2, from rows whose release is not stated."""
    chosen = [r for r in rows if r.text("system") == CS2.name and not r.text("software")]
    wafer = CS2
    for _ in range(REPETITIONS):
        wafer = _improved(wafer, chosen)
    return {
        "CS2.kernel_efficiency": wafer.kernel_efficiency,
        "CS2.attention_efficiency": wafer.attention_efficiency,
        "CS2.segment_overhead_ps": wafer.segment_overhead_ps,
    }


def fit_releases(rows: Sequence[Row]) -> dict[str, float]:
    """The speed of each release that has rows: the mean of published over predicted."""
    speeds: dict[str, list[float]] = {}
    for row in rows:
        release = release_of(row.text("software"))
        if release is not None:
            wafer = CS2 if row.text("system") == CS2.name else CS3
            base = wafer.model_copy(update={"software_speed": 1.0})
            predicted = run_of(row, "train", base).samples_per_s
            name = f"ReleaseSpeeds.{release_name(wafer.name, release)}"
            speeds.setdefault(name, []).append(float(row.value) / predicted)
    return {name: float(np.mean(found)) for name, found in speeds.items()}


def _improved(wafer: WaferSpec, rows: Sequence[Row]) -> WaferSpec:
    """The wafer with the constants that fit best, given its layouts and waits."""
    parts = [_parts_s(run_of(row, "train", wafer)) for row in rows]
    published_s = [run_of(row, "train", wafer).batch_size / float(row.value) for row in rows]
    scaled = np.array([part[:3] for part in parts]) / np.array(published_s)[:, None]
    wanted = 1 - np.array([part[3] for part in parts]) / np.array(published_s)
    kernels, attention, overhead_s = np.linalg.lstsq(scaled, wanted, rcond=None)[0]
    return wafer.model_copy(
        update={
            "kernel_efficiency": float(1 / kernels),
            "attention_efficiency": float(1 / attention),
            "segment_overhead_ps": round(overhead_s * PS_PER_S),
        }
    )


def _parts_s(run: Run) -> tuple[float, float, float, float]:
    """Of one step: kernels and attention at full efficiency, number of segments, and the rest."""
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
    segments_s = rounds * seconds(sum(cost.total_ps for cost in costed.costs))
    rest_s = run.step_s - segments_s
    segments = rounds * len(program.segments) / wafer.software_speed
    return cycles["other"] * per_cycle_s, cycles["attention"] * per_cycle_s, segments, rest_s
