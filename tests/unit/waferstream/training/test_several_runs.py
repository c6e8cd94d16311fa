"""Runs that go on from others, in one model folder or in phases."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.reports.run.history import HistoryFile
from waferstream.training.trainer import Trainer


def test_a_run_keeps_the_results_of_the_runs_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every folder has its own; the model has one curve; a run without work leaves no trace."""
    flags = write_run(tmp_path, init__loop={"max_steps": 4}, init__logging={"log_steps": 1})
    model_dir = tmp_path / "model_dir"
    for steps in (2, 4):
        code, out, err = run_here([*flags, f"--max_steps={steps}", "--mode=train"], capsys)
        assert code == 0, err
    summaries = [json.loads(path.read_text()) for path in sorted(model_dir.glob("2*/*.json"))]
    trained = [summary["train"] for summary in summaries if "train" in summary]
    assert [[step for step, _ in losses] for losses in trained] == [[1, 2], [3, 4]]
    curves = HistoryFile(model_dir / "history.jsonl").curves()
    assert [list(loss) for loss in curves.train] == [*trained[0], *trained[1]]
    pictures = [path.read_bytes() for path in sorted(model_dir.rglob("loss.png"))]
    assert len(pictures) == len(set(pictures)) == 3
    before = {path: path.lstat().st_mtime_ns for path in model_dir.rglob("*")}
    code, again, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    assert digest_of(again) == digest_of(out)
    left = {path: path.lstat().st_mtime_ns for path in model_dir.rglob("*") if path in before}
    changed = {path.name for path in left if left[path] != before[path]}
    assert set(model_dir.rglob("*")) == set(before)
    assert changed <= {"cerebras_logs", "latest", "latest_run.log", "checkpoints_index.yaml.lock"}
    assert (model_dir / "latest_run.log").read_text().endswith(f"{digest_of(out)}\n")


def test_interrupted_run_says_what_the_same_command_goes_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest checkpoint, or none; the log of the run has the end, too."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2})
    for remnant in ("No checkpoint in", "checkpoint_2.mdl"):
        with monkeypatch.context() as patch:
            interrupt_training(patch)
            code, _, err = run_here([*flags, "--mode=train"], capsys)
        assert code == 130
        assert remnant in err
        assert "Interrupted" in (tmp_path / "model_dir" / "latest_run.log").read_text()
        assert run_here([*flags, "--mode=train"], capsys)[0] == 0


@pytest.mark.parametrize(
    ("checkpoint", "named", "start"),
    [
        ({"steps": 1}, "checkpoint_1.mdl", "checkpoint_1.mdl"),
        ({"steps": 1, "autoload_last_checkpoint": False}, None, "the first step"),
    ],
)
def test_interrupted_run_that_does_not_take_the_newest_checkpoint_says_so(
    checkpoint: dict[str, object],
    named: str | None,
    start: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the same command starts, and the flag with which it goes on from another checkpoint."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2}, init__checkpoint=checkpoint)
    model_dir = tmp_path / "model_dir"
    assert run_here([*flags, "--mode=train"], capsys)[0] == 0
    interrupt_training(monkeypatch)
    typed = [f"--checkpoint_path={model_dir / named}"] if named else []
    _, _, err = run_here([*flags, *typed, "--mode=train"], capsys)
    assert f"{start} again" in err
    assert f"the newest checkpoint is {model_dir / 'checkpoint_2.mdl'}." in err


def test_evaluation_without_a_checkpoint_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The numbers of random weights look like those of others; of a checkpoint nothing is said."""
    flags = write_run(tmp_path, init__loop={"max_steps": 1, "eval_steps": 1})
    path = tmp_path / "params.yaml"
    trainer = yaml.safe_load(path.read_text())["trainer"]
    trainer["validate"] = {"val_dataloader": trainer["fit"]["val_dataloader"]}
    path.write_text(yaml.safe_dump({"trainer": trainer}))
    _, out, _ = run_here([*flags, "--mode=eval"], capsys)
    assert "WARNING: No checkpoint in" in out
    run_here([*flags, "--mode=train"], capsys)
    _, out, _ = run_here([*flags, "--mode=eval"], capsys)
    assert "No checkpoint" not in out


def test_phases_run_in_order_from_checkpoint_to_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two phases, of one and of two systems, end with the weights of a single run."""
    whole = write_run(tmp_path, init__loop={"max_steps": 4})
    code, out, err = run_here([*whole, "--mode=train"], capsys)
    assert code == 0, err
    flags = write_phases(tmp_path, {"max_steps": 2}, {"max_steps": 4})
    code, again, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    assert "Phase 2 of 2" in again
    assert "checkpoint_2.mdl, step 2" in again
    assert "Preparing to execute using 2 CSX" in again
    assert digest_of(again) == digest_of(out)


def interrupt_training(patch: pytest.MonkeyPatch) -> None:
    """Let every training end as by Ctrl-C."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(Trainer, "fit", interrupted)


def write_phases(folder: Path, *loops: dict[str, int]) -> list[str]:
    """Write a params file with a phase for each loop, on 1, 2, ... systems; return its flags."""
    phases = []
    for num_csx, loop in enumerate(loops, start=1):
        backend = {"cluster_config": {"num_csx": num_csx}}
        flags = write_run(folder, init__loop=loop, init__backend=backend)
        phases.append(yaml.safe_load((folder / "params.yaml").read_text()))
    (folder / "params.yaml").write_text(yaml.safe_dump({"trainer": phases}))
    return [flag for flag in flags if "model_dir" not in flag] + [
        f"--model_dir={folder / 'phases'}"
    ]
