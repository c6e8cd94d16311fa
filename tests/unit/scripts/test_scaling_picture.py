"""The scaling picture of the README: three panels from curves and measured runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from scripts.scaling_picture import MeasuredRuns, scaling_picture
from tests.support.errors import raises
from tests.support.reports.pictures import drawn, overlapping, words
from tests.support.reports.summaries import DIGEST, run_curve, simulated_curve, summary, with_digest
from waferstream.core.errors import ConfigError
from waferstream.machine.attribution import Attribution
from waferstream.reports.curve.result import CurveResult

CAUSES = Attribution(compute=940, overhead=60)


def measured(curve: CurveResult) -> MeasuredRuns:
    """Return the runs of a curve as its JSON file has them."""
    plain = json.loads(json.dumps(asdict(curve), default=str))
    return MeasuredRuns.of(plain)


def test_scaling_picture_has_both_scalings_and_the_runs(tmp_path: Path) -> None:
    """No texts overlap."""
    strong = simulated_curve((1, 2, 4), CAUSES)
    strong = replace(strong, others=(replace(strong, system="CS-3"),))
    runs = measured(run_curve(summary(1), summary(4)))
    with drawn() as figures:
        scaling_picture(tmp_path / "scaling.png", strong, replace(strong, weak=True), runs)
    text = " ".join(words(figures[0]))
    assert "Strong scaling" in text
    assert "Weak scaling" in text
    assert DIGEST[:8] in text
    assert overlapping(figures[0]) == []


def test_measured_runs_need_the_same_weights() -> None:
    with raises(ConfigError, "curve-not-trained"):
        measured(run_curve(summary(1), with_digest(summary(2), "cd")))
