"""Callbacks of the user's, the metrics of evaluations, and samples that are skipped."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.event_files import scalars
from tests.support.programs.user_programs import CROSS_ENTROPY, user_trainer, write_program
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.checkpoint.reader import Reader

METRICS = ("eval/accuracy", "eval/lm_perplexity")

CALLBACKS = '''
import torch

import cstorch

HEARD = []


class Report:
    """Note which hooks run, and log a number computed in the step."""

    def __init__(self, every):
        self.every = every

    def setup(self, trainer):
        HEARD.append("setup")

    def on_fit_start(self, trainer, train_dataloader, val_dataloader, loop):
        HEARD.append(("fit", loop.max_steps))

    def on_after_forward(self, trainer, model, outputs, batch):
        trainer.log_metrics(twice=2 * outputs["loss"])

    def on_before_optimizer_step(self, trainer, model, optimizer):
        self.log_norm(torch.norm(next(model.parameters()).grad))

    @cstorch.step_closure
    def log_norm(self, norm):
        HEARD.append(("norm", norm.item() > 0))

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if (batch_idx + 1) % self.every == 0:
            self.check(outputs["loss"], trainer.global_step)

    @cstorch.step_closure
    def check(self, loss, step):
        HEARD.append(("loss", loss.item()))

    def on_save_checkpoint(self, trainer, state_dict):
        state_dict["report"] = {"heard": len(HEARD)}

    def on_load_checkpoint(self, trainer, state_dict):
        HEARD.append(("loaded", state_dict["report"]["heard"]))

    def on_fit_end(self, trainer, loop):
        HEARD.append(("end", trainer.global_step))


class Late:
    def postprocess_checkpoint(self, trainer, state_dict):
        pass
'''


def folder_in(path: Path, name: str) -> Path:
    """Return a new folder."""
    (path / name).mkdir()
    return path / name


def logged(folder: Path) -> dict[str, dict[int, float]]:
    """Return the values of every curve of a run by step."""
    found: dict[str, dict[int, float]] = {}
    for path in (folder / "model_dir").rglob("events.out.*"):
        for name, value, step in scalars(path):
            found.setdefault(name, {})[step] = value
    return found


def test_callback_of_the_user_hears_the_run_and_changes_no_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its hooks run in order, its numbers are logged, its state is saved and loaded."""
    (tmp_path / "own_callbacks.py").write_text(CALLBACKS)
    loop: dict[str, Any] = {"init__loop": {"max_steps": 2}, "init__logging": {"log_steps": 1}}
    own = {"class": "own_callbacks:Report", "every": 2}
    _, plain, _ = run_here(write_run(folder_in(tmp_path, "plain"), **loop), capsys)
    flags = write_run(tmp_path, **loop, init__callbacks=[own])
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    assert digest_of(out) == digest_of(plain)
    heard = import_module("own_callbacks").HEARD
    saved = Reader(tmp_path / "model_dir" / "checkpoint_2.mdl").objects["report"]
    loss = logged(tmp_path)["train/loss"][2]
    assert heard[:2] == ["setup", ("fit", 2)]
    assert heard.count(("norm", True)) == 2
    (seen,) = (value for name, value in heard[2:] if name == "loss")
    assert seen == pytest.approx(loss)
    assert logged(tmp_path)["twice"][2] == pytest.approx(2 * loss)
    assert heard[-1] == ("end", 2)
    run_here([*flags, "--max_steps=3"], capsys)
    assert ("loaded", saved["heard"]) in heard


def test_callback_with_a_hook_that_no_run_calls_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "late_callbacks.py").write_text(CALLBACKS)
    flags = write_run(tmp_path, init__callbacks=[{"class": "late_callbacks:Late"}])
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "[callback-hook-not-here]" in err


def test_evaluation_logs_the_metrics_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accuracy and perplexity do not depend on the number of systems; a model may have none."""
    loop: dict[str, Any] = {"init__loop": {"max_steps": 1, "eval_frequency": 1, "eval_steps": 2}}
    found = []
    for name, flag in (("one", "--num_csx=1"), ("two", "--num_csx=2")):
        folder = folder_in(tmp_path, name)
        code, out, err = run_here([*write_run(folder, **loop), flag, "-m=train_and_eval"], capsys)
        assert code == 0, err
        found.append({key: logged(folder)[key] for key in METRICS})
        assert " - eval/accuracy = " in out
    assert found[0] == found[1]
    folder = folder_in(tmp_path, "without")
    plain = write_run(folder, **loop, init__model__compute_eval_metrics=False)
    _, out, _ = run_here([*plain, "-m=train_and_eval"], capsys)
    assert {name for name in logged(folder) if name.startswith("eval/")} == {"eval/loss"}
    assert "Evaluation metrics" not in out


def test_skipped_samples_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without its first two batches sees the losses of another order; a resumed one none."""
    trainer = user_trainer(
        {"class": "skipping_net:Net", "loss": CROSS_ENTROPY},
        {"class": "skipping_net:named", "batch_size": 8},
        checkpoint={"steps": 1},
        callbacks=[{"SkipSamples": {"n": 16}}],
    )
    flags = write_program(tmp_path, "skipping_net", trainer)
    code, _, err = run_here(flags, capsys)
    assert code == 0, err
    newest = max((tmp_path / "model_dir").glob("*.mdl"), key=lambda path: path.stat().st_mtime)
    state = Reader(newest).objects
    assert state["dataloader"]["samples_streamed"] == 16 + 8 * state["global_step"]
