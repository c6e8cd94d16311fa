"""Launches of a workflow: ended at any moment and gone on with, they are one run."""

import json
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memoryx.store.store import WeightStore
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.management.model.launched import SYSTEMS, WORKFLOW
from waferstream.training.evaluation import Evaluator

ENDED = 128 + signal.SIGTERM

Break = Callable[[], Any]
"""Makes a context in which a run gets SIGTERM once."""


def in_step(number: int) -> Any:
    """SIGTERM while the weights of a step are updated."""
    update, left = WeightStore.update, [number]

    def hit(self: WeightStore, gradients: Any, step: int) -> None:
        if left and step >= left[0]:
            left.clear()
            signal.raise_signal(signal.SIGTERM)
        update(self, gradients, step)

    return patch.object(WeightStore, "update", hit)


def in_compile() -> Any:
    """SIGTERM before the step is compiled."""
    return patch.dict(vars(import_module("cstorch.trace")), fit_step=_terminated)


def in_evaluation(number: int) -> Any:
    """SIGTERM when an evaluation begins, counted from 1."""
    evaluate, begun = Evaluator._evaluate, []

    def hit(self: Evaluator, *arguments: Any) -> None:
        begun.append(self)
        if len(begun) == number:
            signal.raise_signal(signal.SIGTERM)
        evaluate(self, *arguments)

    return patch.object(Evaluator, "_evaluate", hit)


def _terminated(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this test are launches of one workflow."""
    monkeypatch.setenv(WORKFLOW, "wflow-1")
    monkeypatch.setenv(SYSTEMS, "4")


def alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **keys: Any
) -> tuple[str, dict[str, Any], set[str]]:
    """The hash, summary and checkpoints of a run to the end."""
    folder.mkdir()
    with monkeypatch.context() as patched:
        patched.delenv(WORKFLOW)
        code, out, err = run_here([*write_run(folder, **keys), "--num_csx=4"], capsys)
    assert code == 0, err
    return digest_of(out), *left_by(folder)


def left_by(folder: Path) -> tuple[dict[str, Any], set[str]]:
    """The summary and the checkpoints of a run."""
    model_dir = folder / "model_dir"
    summary = json.loads((model_dir / "run_summary.json").read_text())
    return summary, {path.name for path in model_dir.glob("*.mdl")}


NEVER: dict[str, Any] = {"init__checkpoint": {"steps": None}}
FILLED: dict[str, Any] = {
    "init__callbacks": [{"GlobalFlags": {"csx.performance.micro_batch_size": "fill_wafer"}}],
    "init__loop": {"max_steps": 3, "eval_frequency": 0},
    "init__checkpoint": {"steps": 3},
}
RELATIVE: dict[str, Any] = {
    "init__loop": {"num_steps": 6, "eval_frequency": 0.5, "eval_steps": 1},
    "init__checkpoint": {"steps": 4, "checkpoint_name": "model_{step}.mdl"},
}


@pytest.mark.parametrize(
    ("keys", "breaks"),
    [
        (NEVER, [in_compile, lambda: in_step(1), lambda: in_step(6)]),
        pytest.param(
            *(NEVER, [lambda: in_evaluation(1), lambda: in_evaluation(1)]),
            marks=pytest.mark.nightly,
        ),
        (RELATIVE, [lambda: in_step(2), lambda: in_evaluation(2), lambda: in_evaluation(1)]),
        (FILLED, [lambda: in_step(2), lambda: in_step(3)]),
    ],
    ids=["steps", "evaluations", "relative", "cut for all systems"],
)
@pytest.mark.usefixtures("launched")
def test_ended_launches_are_one_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    breaks: list[Break],
) -> None:
    """On other systems each time: hash, losses, evaluations and checkpoints of the run alone."""
    digest, summary, checkpoints = alone(tmp_path / "alone", capsys, monkeypatch, **keys)
    flags = write_run(tmp_path, **keys)
    for systems, broken in enumerate(breaks, start=1):
        with broken():
            code, out, err = run_here([*flags, f"--num_csx={systems}"], capsys)
        assert code == ENDED, out + err
        assert "same command" not in err
    code, out, err = run_here([*flags, "--num_csx=4", "--num_workers_per_csx=2"], capsys)
    assert code == 0, err
    assert digest_of(out) == digest
    found, kept = left_by(tmp_path)
    assert kept == checkpoints
    same = ("first_step", "last_step", "train", "eval", "weights_sha256")
    assert {key: found[key] for key in same} == {key: summary[key] for key in same}
    folders = {path.parent for path in (tmp_path / "model_dir").glob("2*/run.log")}
    assert len(folders) == 1


@pytest.mark.usefixtures("launched")
def test_lost_role_of_a_resized_launch_recovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts begin where the launch did, before it has a checkpoint of its own."""
    keys = {**NEVER, "init__autorestart": {"max_num_restarts": 1}}
    digest, summary, checkpoints = alone(tmp_path / "alone", capsys, monkeypatch, **keys)
    flags = write_run(tmp_path, **keys)
    with in_step(3):
        code, out, err = run_here([*flags, "--num_csx=1"], capsys)
    assert code == ENDED, out + err
    code, out, err = run_here([*flags, "--num_csx=4", "--fault=csx-2@6:exception"], capsys)
    assert code == 0, out + err
    assert "csx-2" in out
    assert digest_of(out) == digest
    found, kept = left_by(tmp_path)
    assert (found["train"], kept) == (summary["train"], checkpoints)
