"""The scaling experiment: arguments of runs, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.reports.summaries import DIGEST, summary
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.host.files import write_json
from waferstream.reports.run.summary import RunSummary
from waferstream.scaling.experiment import Experiment, measure

POLICY = MicroBatchPolicy()


class FakeRuns:
    """Fake run.py: records its arguments and writes a summary into the model folder."""

    def __init__(self, make: Callable[[int], RunSummary] = summary, exit_code: int = 0) -> None:
        self.arguments: list[dict[str, str]] = []
        self._make = make
        self._exit_code = exit_code

    def __call__(self, arguments: Sequence[str]) -> int:
        flags = dict(argument.split("=", 1) for argument in arguments)
        self.arguments.append(flags)
        model_dir = Path(flags["--model_dir"])
        model_dir.mkdir(parents=True)
        write_json(model_dir / "run_summary.json", self._make(int(flags["--num_csx"])).to_json())
        return self._exit_code


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """Return runs of ten steps on one and on four systems."""
    params = tmp_path / "params.yaml"
    params.write_text("trainer: {init: {seed: 1}}")
    return Experiment(params, (1, 4), tmp_path / "out", steps=10)


def test_measure_calls_every_run_with_its_arguments(experiment: Experiment) -> None:
    run = FakeRuns()
    result = measure(experiment, POLICY, run, experiment.out)
    assert [point.num_csx for point in result.points] == [1, 4]
    assert result.training is not None
    assert result.training.weights_sha256 == DIGEST
    assert (result.commit, result.micro_batch) == (None, "auto")
    assert result.configuration["params"] == {"trainer": {"init": {"seed": 1}}}
    for count, flags in zip((1, 4), run.arguments, strict=True):
        assert flags == {
            "--params": str(experiment.params),
            "--num_csx": str(count),
            "--model_dir": str(experiment.out / f"csx_{count}"),
            "--mode": "train",
            "--num_steps": "10",
        }


def test_arguments_pass_the_cluster_and_omit_missing_steps(
    experiment: Experiment, tmp_path: Path
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("machine: {system: CS-3}")
    run = FakeRuns()
    measure(replace(experiment, steps=None, cluster=cluster), POLICY, run, tmp_path)
    assert run.arguments[0]["--cluster"] == str(cluster)
    assert "--num_steps" not in run.arguments[0]


def test_measure_reads_files_before_the_first_run(experiment: Experiment) -> None:
    run = FakeRuns()
    with pytest.raises(ConfigError) as caught:
        measure(replace(experiment, params=Path("missing.yaml")), POLICY, run, experiment.out)
    assert caught.value.where == "missing.yaml"
    assert run.arguments == []
    assert not experiment.out.exists()


def test_measure_refuses_an_existing_run_folder(experiment: Experiment) -> None:
    """A run would continue from its checkpoint and train other steps."""
    experiment.model_dir(4).mkdir(parents=True)
    run = FakeRuns()
    with raises(ConfigError, "run-folder-exists"):
        measure(experiment, POLICY, run, experiment.out)
    assert run.arguments == []


def test_measure_ends_at_the_first_run_that_fails(experiment: Experiment) -> None:
    run = FakeRuns(exit_code=1)
    with raises(WaferStreamError, "run-failed") as caught:
        measure(experiment, POLICY, run, experiment.out)
    assert caught.value.value == "exit code 1"
    assert len(run.arguments) == 1


@pytest.mark.parametrize("text", [None, "{", "[]", '{"status": "completed"}'])
def test_measure_refuses_an_unreadable_summary(experiment: Experiment, text: str | None) -> None:
    """Missing, no JSON, no mapping, incomplete."""

    def run(arguments: Sequence[str]) -> int:
        experiment.model_dir(1).mkdir(parents=True)
        if text is not None:
            (experiment.model_dir(1) / "run_summary.json").write_text(text)
        return 0

    with raises(WaferStreamError, "run-summary-unreadable") as caught:
        measure(experiment, POLICY, run, experiment.out)
    assert caught.value.where == str(experiment.model_dir(1) / "run_summary.json")


def test_measure_refuses_a_run_that_trained_nothing(experiment: Experiment) -> None:
    run = FakeRuns(lambda count: replace(summary(count), weights_sha256=None))
    with raises(WaferStreamError, "run-not-completed"):
        measure(experiment, POLICY, run, experiment.out)
