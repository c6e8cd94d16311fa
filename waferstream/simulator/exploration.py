"""Comparison of micro-batch sizes on the emulated machine: memory, recompute, step time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from waferstream.core.program.micro_batches import Cut
from waferstream.core.units import format_bytes, format_ps
from waferstream.simulator.simulator import Simulator

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Trial:
    """One micro-batch size that fits the wafer."""

    micro_batch_size: int
    num_micro_batches: int
    peak_bytes: int
    recomputed: int  # segments
    step_ps: int


def explore(
    simulator: Simulator, batch_size: int, sizes: Sequence[int], num_csx: int
) -> tuple[Trial, ...]:
    """Predict a step of ``batch_size`` samples at each size that fits the wafer.

    ``sizes`` are in ascending order. The log has a line for each, and one for each that is faster
    than all before.

    Raises ApplianceResourceExhausted if not even the first size fits, and none may overflow.
    """
    trials: list[Trial] = []
    for size in sizes:
        log.info("Gradient accumulation trying micro batch size %d", size)
        if trials and size > simulator.largest_micro_batch:
            log.info("Micro batch size %d does not fit", size)
            break
        sram_plan = simulator.sram_plan(size)
        step_ps = simulator.predict(batch_size, size, num_csx).timing.duration_ps
        trials.append(
            Trial(
                size,
                Cut.of(batch_size, size, num_csx).num_micro_batches,
                sram_plan.peak_bytes,
                len(sram_plan.recomputed),
                step_ps,
            )
        )
        if fastest(trials) is trials[-1] and len(trials) > 1:
            log.info("Micro batch size %d showed a benefit", size)
    return tuple(trials)


def fastest(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the shortest step; of equals the smallest micro-batch."""
    return min(trials, key=lambda trial: (trial.step_ps, trial.micro_batch_size))


def exploration_table(trials: Sequence[Trial]) -> str:
    """Format one line per size; an arrow marks the fastest."""
    best = fastest(trials)
    lines = ["  micro-batch  micro-batches  SRAM at the peak  recomputed  step"]
    lines += [
        f"{'->' if trial is best else '  '}{trial.micro_batch_size:>11}"
        f"{trial.num_micro_batches:>15}{format_bytes(trial.peak_bytes):>18}"
        f"{trial.recomputed:>12}  {format_ps(trial.step_ps)}"
        for trial in trials
    ]
    return "\n".join(lines)
