"""The curve of training runs that differ in their number of systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waferstream.core.errors import WaferStreamError
from waferstream.reports.curve.result import (
    CurvePoint,
    CurveResult,
    TrainedRun,
    TrainingInfo,
    efficiencies,
)
from waferstream.reports.run.summary import Emulated, Measured, RunSummary


def curve_of_runs(
    runs: Sequence[RunSummary],
    micro_batch: int | str,
    commit: str | None,
    configuration: Mapping[str, Any],
) -> CurveResult:
    """Return the curve of training runs that differ in ``num_csx`` only.

    Args:
        runs: Summaries of the runs, in any order.
        micro_batch: Configured micro-batch size, or the name of the policy.
        commit: Commit of the source tree.
        configuration: Files and numbers that define the runs.

    Raises:
        WaferStreamError: A run is not a completed training.
    """
    ordered = sorted(runs, key=lambda run: run.num_csx)
    points = _points(ordered)
    digests = {point.run.weights_sha256 for point in points if point.run is not None}
    first = ordered[0]
    return CurveResult(
        version=first.version,
        commit=commit,
        system=first.system,
        model=first.model,
        batch_size=first.batch_size,
        tokens_per_sample=None,
        micro_batch=micro_batch,
        points=points,
        training=TrainingInfo(
            num_steps=first.last_step - first.first_step + 1,
            weights_sha256=digests.pop() if len(digests) == 1 else None,
        ),
        configuration=configuration,
    )


def _points(runs: Sequence[RunSummary]) -> tuple[CurvePoint, ...]:
    """Return a point for each run, with its efficiency relative to the first one."""
    completed = [_completed(run) for run in runs]
    counts = [run.num_csx for run in runs]
    emulated = efficiencies(counts, [emulated.samples_per_s for _, _, emulated in completed])
    measured = efficiencies(counts, [measured.samples_per_s for _, measured, _ in completed])
    return tuple(
        CurvePoint(
            num_csx=run.num_csx,
            micro_batch_size=run.micro_batch_size,
            emulated=on_machine,
            efficiency=emulated[index],
            run=TrainedRun(digest, on_host, measured[index]),
            interval=run.interval,
            energy=run.energy,
        )
        for index, (run, (digest, on_host, on_machine)) in enumerate(
            zip(runs, completed, strict=True)
        )
    )


def _completed(run: RunSummary) -> tuple[str, Measured, Emulated]:
    """Return digest, measured and emulated throughput of a completed training run."""
    if (
        run.status != "completed"
        or run.weights_sha256 is None
        or run.measured is None
        or run.emulated is None
    ):
        raise WaferStreamError(
            f"the run with num_csx={run.num_csx} is not a completed training run",
            code="run-not-completed",
            value=f"status {run.status}",
            rule="a run of the experiment trains, and reports weights and both throughputs",
        )
    return run.weights_sha256, run.measured, run.emulated
