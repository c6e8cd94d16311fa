"""The same training on every number of systems, or one message that says why not."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import modelzoo
from tests.support.summaries import DIGEST, summary
from waferstream.config.params import load_params
from waferstream.reports.summary import RunSummary
from waferstream.scaling.experiment import Experiment, measure, write_results
from waferstream.scaling.gpus import compare_with_gpus
from wsc.core.errors import ConfigError, WaferStreamError
from wsc.core.files import write_json


class FakeRuns:
    """Stands in for run.py: notes its arguments and writes a summary into the model folder."""

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
    """Runs on one and on four systems, of ten steps."""
    params = tmp_path / "params.yaml"
    params.write_text("trainer: {init: {seed: 1}}")
    return Experiment(params, (1, 4), tmp_path / "out", steps=10)


def test_every_run_is_the_same_training_on_other_systems(experiment: Experiment) -> None:
    """Same params and steps, its own number of systems and folder."""
    run = FakeRuns()
    scaling = measure(experiment, run)
    assert [point.num_csx for point in scaling.points] == [1, 4]
    for count, flags in zip((1, 4), run.arguments, strict=True):
        assert flags == {
            "--params": str(experiment.params),
            "--num_csx": str(count),
            "--model_dir": str(experiment.out / f"csx_{count}"),
            "--mode": "train",
            "--num_steps": "10",
        }


def test_cluster_is_passed_on_and_no_steps_are_where_none_are_asked_for(
    experiment: Experiment, tmp_path: Path
) -> None:
    """run.py decides what is left out."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("machine: {system: CS-3}")
    run = FakeRuns()
    measure(replace(experiment, steps=None, cluster=cluster), run)
    assert run.arguments[0]["--cluster"] == str(cluster)
    assert "--num_steps" not in run.arguments[0]


def test_a_missing_file_is_noticed_before_the_first_run(experiment: Experiment) -> None:
    """And nothing is left behind."""
    run = FakeRuns()
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        measure(replace(experiment, params=Path("missing.yaml")), run)
    assert run.arguments == []
    assert not experiment.out.exists()


def test_a_used_folder_is_refused_before_the_first_run(experiment: Experiment) -> None:
    """A run would continue from its checkpoint and train other steps than the rest."""
    experiment.model_dir(4).mkdir(parents=True)
    run = FakeRuns()
    with pytest.raises(ConfigError, match="csx_4"):
        measure(experiment, run)
    assert run.arguments == []


def test_the_first_run_that_fails_ends_the_experiment(experiment: Experiment) -> None:
    """The message names the run; no further one is started."""
    run = FakeRuns(exit_code=1)
    with pytest.raises(WaferStreamError, match="num_csx=1 failed"):
        measure(experiment, run)
    assert len(run.arguments) == 1


@pytest.mark.parametrize("text", [None, "{", "[]", '{"status": "completed"}'])
def test_a_run_without_a_proper_summary_is_an_error(
    experiment: Experiment, text: str | None
) -> None:
    """Missing, no JSON, no mapping, incomplete: the message names the file."""

    def run(arguments: Sequence[str]) -> int:
        experiment.model_dir(1).mkdir(parents=True)
        if text is not None:
            (experiment.model_dir(1) / "run_summary.json").write_text(text)
        return 0

    with pytest.raises(WaferStreamError, match=r"csx_1/run_summary\.json"):
        measure(experiment, run)


def test_a_run_that_trained_nothing_is_an_error(experiment: Experiment) -> None:
    """Exit code 0 alone is no result."""
    run = FakeRuns(lambda count: replace(summary(count), weights_sha256=None))
    with pytest.raises(WaferStreamError, match="num_csx=1 is no completed training"):
        measure(experiment, run)


def test_results_hold_every_number_and_where_they_come_from(experiment: Experiment) -> None:
    """JSON, picture and page; the JSON alone is enough to draw the curve again."""
    scaling = measure(experiment, FakeRuns(lambda count: summary(count, reduce_ps=2_000_000)))
    page = write_results(experiment, scaling, home=experiment.out)
    data = json.loads((experiment.out / "scaling.json").read_text())
    assert data["configuration"]["params"] == {"trainer": {"init": {"seed": 1}}}
    assert data["host"]["cores"] == 2
    assert data["commit"] is None
    assert data["one_answer"] is True
    first, second = data["runs"]
    assert (first["num_csx"], second["num_csx"]) == (1, 4)
    assert second["weights_sha256"] == DIGEST
    assert second["emulated"]["efficiency"] == pytest.approx(10 / 16)
    assert second["emulated"]["step_ps"] == 4_000_000
    assert second["emulated"]["attribution_ps"]["reduce"] == 20_000_000
    assert second["measured"] == {"samples_per_s": 32.0, "seconds": 5.0, "efficiency": 0.25}
    assert (experiment.out / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "One answer: yes" in page.read_text()


@pytest.mark.parametrize("name", ["gpt3_1.3b", "dit_2b"])
def test_gpu_clusters_stand_beside_ours(experiment: Experiment, name: str) -> None:
    """In JSON, on the page, and as a picture where there is something to draw."""
    params = Path(modelzoo.__file__).parent / "params" / f"{name}.yaml"
    gpus = compare_with_gpus(load_params(params), 1_300_000_000)
    scaling = measure(experiment, FakeRuns())
    page = write_results(experiment, scaling, experiment.out, gpus)
    data = json.loads((experiment.out / "scaling.json").read_text())
    assert len(data["gpus"]["curves"]) == len(gpus.curves)
    assert gpus.note in page.read_text()
    assert (experiment.out / "gpus.png").exists() == bool(gpus.curves)
