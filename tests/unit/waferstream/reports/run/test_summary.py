"""Summaries of runs: round trip through JSON, and sums of picoseconds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.reports.summaries import summary
from waferstream.host.files import write_json
from waferstream.machine.attribution import Attribution, StepTiming, TimedSteps
from waferstream.reports.run.summary import Emulated, RunSummary


def timing(step: int, start_ps: int, attribution: Attribution) -> StepTiming:
    """Return a step of batch 4 in which every system is busy."""
    end_ps = start_ps + attribution.total_ps
    return StepTiming(step, start_ps, end_ps, 4, 2, attribution, attribution)


def test_run_summary_survives_its_file(tmp_path: Path) -> None:
    """Also with a diverged loss."""
    run = replace(
        summary(4), eval=((10, math.inf, {"eval/accuracy": 0.5}),), checkpoint="checkpoint_10.mdl"
    )
    write_json(tmp_path / "run_summary.json", run.to_json())
    assert RunSummary.from_json(json.loads((tmp_path / "run_summary.json").read_text())) == run


def test_run_summary_of_a_run_that_failed_early() -> None:
    """No weights, no throughput, no curves."""
    run = replace(
        summary(4), status="failed", weights_sha256=None, measured=None, emulated=None, train=()
    )
    assert RunSummary.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("key", "value"), [("status", "fine"), ("num_csx", "four"), ("surprise", 1), ("model", {})]
)
def test_run_summary_names_a_wrong_key(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        RunSummary.from_json({**summary(1).to_json(), key: value})


def test_emulated_of_counts_training_steps_only() -> None:
    """An evaluation between two steps does not count."""
    timings = [
        timing(1, 0, Attribution(compute=3_000, weights=1_000)),
        timing(2, 9_000, Attribution(compute=2_000)),
    ]
    emulated = Emulated.of(TimedSteps.of(timings))
    assert emulated.total_ps == 6_000
    assert emulated.step_ps == 3_000
    assert emulated.attribution_ps == Attribution(compute=5_000, weights=1_000)
    assert emulated.samples_per_s == pytest.approx(8 / 6e-9)


def test_emulated_refuses_an_attribution_that_does_not_sum() -> None:
    with pytest.raises(ValueError, match="10 ps"):
        Emulated(1.0, 10, Attribution(compute=9), 10)
