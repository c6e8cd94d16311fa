"""Checkpoints written beside the training are those written at once; errors are not lost."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memoryx.store.store import WeightStore
from tests.support.runs.tiny_run import TINY, digest_of, run_here, write_run
from waferstream.checkpoint.reader import Reader
from waferstream.host import disk
from waferstream.training.evaluation import Evaluator

KEYS: dict[str, Any] = {"init__loop": {"max_steps": 4}, "init__logging": {"log_steps": 1}}
IN_BACKGROUND = {"steps": 2, "async_save": True}


def delayed(write: Callable[..., None]) -> Callable[..., None]:
    """Return a function that writes a checkpoint only when the next step updates its weights."""

    def slow(*arguments: Any) -> None:
        if threading.current_thread().name == "snapshot":
            time.sleep(0.005)
        write(*arguments)

    return slow


def test_background_checkpoints_equal_those_written_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, although the weights change while a checkpoint is written; the hash, too."""
    folders = {}
    for kind, section in (("at once", {"steps": 2}), ("background", IN_BACKGROUND)):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "background":
            monkeypatch.setattr(disk, "write_at", delayed(disk.write_at))
        code, out, err = run_here(write_run(folder, **KEYS, init__checkpoint=section), capsys)
        assert code == 0, err
        assert out.count("Saved checkpoint") == 2
        folders[folder / "model_dir"] = digest_of(out)
    assert len(set(folders.values())) == 1
    for name in ("checkpoint_2.mdl", "checkpoint_4.mdl"):
        one, other = (Reader(folder / name) for folder in folders)
        assert one.tensors == other.tensors
        assert one.objects == other.objects
        assert all(np.array_equal(one[key], other[key]) for key in one.tensors)


def test_error_of_a_background_checkpoint_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while training goes on; nothing incomplete is left."""

    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", full)
    flags = write_run(tmp_path, **KEYS, init__checkpoint=IN_BACKGROUND)
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "[checkpoint-not-writable]" in err
    assert f"where: {tmp_path / 'model_dir' / 'checkpoint_2.mdl'}\n" in err
    assert os.strerror(28) in err
    assert not list((tmp_path / "model_dir").glob("*.mdl*"))
    assert not list((tmp_path / "model_dir").glob(".*partial*"))


@pytest.mark.parametrize(("step", "code"), [(3, 0), pytest.param(4, 1, marks=pytest.mark.nightly)])
def test_protected_run_goes_on_without_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], step: int, code: int
) -> None:
    """A full disk costs a warning, and recovery works afterwards; the end of the run raises the
    error if it was the last checkpoint, with the hash of a run on an empty disk."""
    steps: dict[str, Any] = {"init__checkpoint": {"steps": 1}}
    (tmp_path / "expected").mkdir()
    _, expected, _ = run_here(write_run(tmp_path / "expected", **KEYS, **steps), capsys)
    flags = write_run(tmp_path, **KEYS, **steps, init__autorestart={"max_num_restarts": 1})
    faults = (f"--fault=wgt-0@{step}:disk", "--fault=br-0@4:exception")
    status, out, err = run_here([*flags, *faults], capsys)
    assert status == code
    assert digest_of(out) == digest_of(expected)
    assert ("[checkpoint-not-writable]" in err) is (code == 1)
    assert f"without a checkpoint of step {step}: " in out
    written = {path.name for path in (tmp_path / "model_dir").glob("*.mdl")}
    assert written == {f"checkpoint_{n}.mdl" for n in (1, 2, 3, 4) if n != step}


def test_full_disk_ends_an_unprotected_run_that_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason and a remedy; the checkpoints before are whole, and the same command ends
    with the hash of a run on an empty disk."""
    steps: dict[str, Any] = {"init__checkpoint": {"steps": 1}}
    (tmp_path / "expected").mkdir()
    _, expected, _ = run_here(write_run(tmp_path / "expected", **KEYS, **steps), capsys)
    flags = [*write_run(tmp_path, **KEYS, **steps), "--fault=wgt-0@3:disk"]
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "[checkpoint-not-writable]" in err
    assert f"where: {tmp_path / 'model_dir' / 'checkpoint_3.mdl'}\n" in err
    assert "remedy: " in err
    files = sorted((tmp_path / "model_dir").glob("*checkpoint_*"))
    assert [path.name for path in files] == ["checkpoint_1.mdl", "checkpoint_2.mdl"]
    for path in files:
        Reader(path).verify()
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    assert "checkpoint_2.mdl, step 2" in out
    assert digest_of(out) == digest_of(expected)


def test_checkpoint_is_finished_when_the_run_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step after it fails while it is written; the same command continues from it."""
    monkeypatch.setattr(disk, "write_at", delayed(disk.write_at))
    from memoryx.store.store import WeightStore

    update = WeightStore.update

    def fail(self: WeightStore, gradients: Any, step: int) -> None:
        if step == 3:
            raise ValueError("step 3")
        update(self, gradients, step)

    flags = write_run(tmp_path, **KEYS, init__checkpoint=IN_BACKGROUND)
    with monkeypatch.context() as patch:
        patch.setattr(WeightStore, "update", fail)
        code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "step 3" in err
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    assert "checkpoint_2.mdl, step 2" in out


@pytest.mark.usefixtures("hang_up_ends")
@pytest.mark.parametrize(
    "number",
    [signal.SIGHUP, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, signal.SIGTERM))],
)
def test_signal_saves_the_current_step(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Optimizer, schedule, scale, data and dropout go on from there: the hash is the same."""
    keys: dict[str, Any] = {
        **KEYS,
        "init__checkpoint": {"steps": 4},
        "init__schedulers": [
            {
                "LinearLR": {
                    "initial_learning_rate": 0.01,
                    "end_learning_rate": 0.001,
                    "total_iters": 4,
                }
            }
        ],
        "init__precision": {
            "enabled": True,
            "fp16_type": "float16",
            "loss_scaling_factor": "dynamic",
        },
        "init__model": TINY["trainer"]["init"]["model"] | {"dropout_rate": 0.1},
    }
    flags = write_run(tmp_path, **keys)
    _, whole, _ = run_here([*flags, f"--model_dir={tmp_path / 'whole'}"], capsys)
    update, signals = WeightStore.update, [number]

    def hit(self: WeightStore, gradients: Any, step: int) -> None:
        if step == 3 and signals:  # once, though a step has an update for each bucket
            signal.raise_signal(signals.pop())
        update(self, gradients, step)

    with monkeypatch.context() as patch:
        patch.setattr(WeightStore, "update", hit)
        found, out, err = run_here(flags, capsys)
    assert found == 128 + number
    assert "same command continues" in err
    assert "Saved checkpoint" in out
    found, again, err = run_here(flags, capsys)
    assert found == 0, err
    assert "checkpoint_3.mdl, step 3" in again
    assert digest_of(again) == digest_of(whole)


def test_signal_in_an_evaluation_saves_the_steps_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is due after them; the hash is that of a run to the end."""
    flags = write_run(tmp_path, init__checkpoint={"steps": 8})
    _, whole, _ = run_here([*flags, f"--model_dir={tmp_path / 'whole'}"], capsys)
    evaluate = Evaluator._evaluate

    def hit(self: Evaluator, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        evaluate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "_evaluate", hit)
        code, out, err = run_here(flags, capsys)
    assert code == 128 + signal.SIGINT
    assert "checkpoint_4.mdl" in out + err
    code, again, err = run_here(flags, capsys)
    assert code == 0, err
    assert "checkpoint_4.mdl, step 4" in again
    assert digest_of(again) == digest_of(whole)


def test_signal_saves_within_a_long_log_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of an interval that takes longer than the grace; the hash is that of one job."""
    keys: dict[str, Any] = {
        "init__loop": {"max_steps": 50},
        "init__logging": {"log_steps": 50},
        "init__checkpoint": {"steps": 50, "grace_s": 2.5},
    }
    flags = write_run(tmp_path, **keys)
    _, whole, _ = run_here([*flags, f"--model_dir={tmp_path / 'whole'}"], capsys)
    update, seen = WeightStore.update, set[int]()

    def slow(self: WeightStore, gradients: Any, step: int) -> None:
        if step not in seen:  # once, though a step has an update for each bucket
            seen.add(step)
            time.sleep(0.1)
            if step == 5:
                signal.raise_signal(signal.SIGINT)
        update(self, gradients, step)

    with monkeypatch.context() as patch:
        patch.setattr(WeightStore, "update", slow)
        code, out, _ = run_here(flags, capsys)
    assert code == 128 + signal.SIGINT
    assert "Saved checkpoint" in out
    assert 5 <= max(seen) <= 20
    code, again, err = run_here(flags, capsys)
    assert code == 0, err
    assert f"checkpoint_{max(seen)}.mdl, step {max(seen)}" in again
    assert digest_of(again) == digest_of(whole)
