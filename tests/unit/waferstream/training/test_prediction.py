"""What a launch reports: the time of its whole run at each number of systems, and its progress."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import write_run
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.run import cluster_of
from waferstream.config.phases import load_params
from waferstream.core.units import seconds
from waferstream.management.model.telemetry import WORKFLOW_METRICS, Telemetry
from waferstream.management.model.workflow import Prediction, Progress
from waferstream.reports.run.summary import RunSummary
from waferstream.training.launch import Launch
from waferstream.training.prediction import sizes
from waferstream.training.session import run_session

KEYS: dict[str, Any] = {
    "init__loop": {"max_steps": 5, "eval_frequency": 0},
    "init__checkpoint": {"steps": None},
    "init__logging": {"log_steps": 1},
}


@dataclass
class Told:
    """A reporter that keeps what it is told."""

    progress: list[Progress] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    telemetry: list[Telemetry] = field(default_factory=list)

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)

    def measured(self, telemetry: Telemetry) -> None:
        self.telemetry.append(telemetry)

    def predicted(self, prediction: Prediction) -> None:
        self.predictions.append(prediction)


def run_told(folder: Path, *flags: str, **changes: Any) -> tuple[Told, RunSummary]:
    """Run a launch of a workflow that asks for 4 systems; return what it told, and its summary."""
    folder.mkdir()
    arguments = parse_arguments([*write_run(folder, **KEYS, **changes), *flags], folder)
    params = load_params(arguments.params, arguments.overrides())
    told = Told()
    launch = Launch("wflow-1", num_csx=4, reporter=told)
    summary = run_session(params, "train", cluster_of(arguments), launch=launch)
    return told, summary


def test_compile_predicts_the_run_at_each_number_of_systems(tmp_path: Path) -> None:
    """To the picosecond what the clocks of the runs themselves say, but for their start-up."""
    told, _ = run_told(tmp_path / "compile", "--compile_only")
    (prediction,) = told.predictions
    assert list(prediction.seconds) == [1, 2, 3, 4]
    assert prediction.error is not None
    assert 0 < prediction.error < 10
    assert prediction.seconds[4] < prediction.seconds[1]
    for num_csx in (1, 4):
        told, summary = run_told(tmp_path / str(num_csx), f"--num_csx={num_csx}")
        assert told.predictions == [prediction]
        assert summary.emulated is not None
        assert summary.start_up is not None
        start_up = summary.start_up
        begin_ps = start_up.total_ps - start_up.compile_ps
        expected = seconds(begin_ps + summary.emulated.total_ps)
        assert prediction.seconds[num_csx] == pytest.approx(expected, rel=1e-12)


def test_progress_is_that_of_the_log(tmp_path: Path) -> None:
    """The beginning, the first step, and the last one, however fast steps are."""
    told, summary = run_told(tmp_path / "run")
    begun, first, *_, last = told.progress
    assert (begun.step, first.step, last.step) == (0, 1, 5)
    assert {each.total_steps for each in told.progress} == {5}
    assert last.loss == summary.train[-1][1]
    assert last.remaining_s == 0
    assert last.emulated_samples_per_s > 0


def test_numbers_of_roles_are_those_of_the_whole_run(tmp_path: Path) -> None:
    """Also of steps between two reports."""
    told, summary = run_told(tmp_path / "run", "--num_csx=2")
    last = told.telemetry[-1]
    assert {sample.metric for sample in last.samples} == set(WORKFLOW_METRICS)
    assert [sample.value for sample in last.of("step")] == [5]
    assert summary.emulated is not None
    spent_s = [
        sample.value for sample in last.of("role_seconds_total") if sample.labels[0] == "csx-0"
    ]
    assert sum(spent_s) == pytest.approx(seconds(summary.emulated.total_ps))


def test_sizes_of_large_clusters_are_sampled() -> None:
    """Each number up to 64, then powers of two, and the whole."""
    assert sizes(3) == [1, 2, 3]
    assert sizes(200)[62:] == [63, 64, 128, 200]
    assert sizes(2048)[-1] == 2048
