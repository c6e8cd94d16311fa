"""A run starts from checkpoints of the vendor's programs, and tells what else is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cstorch
from tests.support.host.tools import tool
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.config.phases import load_params
from waferstream.training.checkpoints.restoring import own_checkpoint


@pytest.fixture
def theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return initial weights with the vendor's names, beside our own in ``own.mdl``."""
    write_run(tmp_path, init__loop={"max_steps": 1})
    params, own = tmp_path / "params.yaml", tmp_path / "own.mdl"
    tool(capsys, "model", "init_checkpoint", params, "-o", own)
    formats = ("--src-fmt=cs-auto", "--tgt-fmt=zoo", "--config", params)
    return Path(tool(capsys, "checkpoint", "convert", own, *formats).strip())


def weights_of(path: Path) -> dict[str, Any]:
    return dict(cstorch.load(path)["model"])


def assert_same(one: Path, other: Path) -> None:
    before, after = weights_of(one), weights_of(other)
    assert before.keys() == after.keys()
    assert all(before[name].equal(after[name]) for name in before)


def test_vendors_weights_become_ours(
    tmp_path: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a run, and by the command; our own checkpoint stays as it is."""
    params, own = tmp_path / "params.yaml", tmp_path / "own.mdl"
    section = load_params(params).trainer.init.model.dump()
    converted = own_checkpoint(theirs, section, tmp_path)
    assert_same(own, converted)
    assert own_checkpoint(own, section, tmp_path) == own
    formats = ("--src-fmt=zoo", "--tgt-fmt=cs-current", "--config", params)
    words = ("checkpoint", "convert", theirs, *formats, "--output-dir", tmp_path / "back")
    assert_same(own, Path(tool(capsys, *words).strip()))


@pytest.mark.nightly
def test_run_starts_from_the_vendors_weights(
    tmp_path: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from our own: it trains the same bits."""
    params = f"--params={tmp_path / 'params.yaml'}"
    folders = tmp_path / "a", tmp_path / "b"
    for path, folder in zip((tmp_path / "own.mdl", theirs), folders, strict=True):
        start = (f"--checkpoint_path={path}", f"--model_dir={folder}", "--mode=train")
        states = ("--load_checkpoint_states=model",) if path != theirs else ()
        code, _, err = run_here([params, *start, *states], capsys)
        assert code == 0, err
    assert_same(*(folder / "checkpoint_1.mdl" for folder in folders))


def test_folder_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = write_run(tmp_path)
    code, _, err = run_here([*flags, "--mode=train", f"--checkpoint_path={tmp_path}"], capsys)
    assert code == 1
    assert "[checkpoint-of-other-kind]" in err
