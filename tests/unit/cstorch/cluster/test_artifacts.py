"""The artifact folder: compile cache and folders of executor loops."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import cstorch
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)


@pytest.mark.parametrize("device", ["CSX", "CPU"])
def test_every_loop_has_a_folder(device: str, tmp_path: Path) -> None:
    """Folders are numbered, also over several runs, and latest is the newest."""
    for expected in (["000001", "000002"], ["000003", "000004"]):
        with running_backend(device=device, artifact_dir=tmp_path) as backend:
            step = training_step(backend)
            loops = [executor(1), executor(1)]
            for loop in loops:
                losses(step, loop)
            assert backend.artifact_dir == tmp_path
            assert [loop.artifact_dir.name for loop in loops] == expected
    assert (tmp_path / "executors" / "latest").resolve().name == "000004"


def test_second_run_finds_the_compile_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It lies in the artifact folder."""
    with caplog.at_level(logging.INFO, "waferstream"):
        for _ in range(2):
            with running_backend(artifact_dir=tmp_path) as backend:
                losses(training_step(backend), executor(1))
    found = [m for m in caplog.messages if m.startswith("Found existing cached compile")]
    assert len(found) == 1
    assert list((tmp_path / "cached_compile").glob("cs_*"))


def test_file_tells_the_compiled_programs(tmp_path: Path) -> None:
    """It exists once a step is compiled, for training and for evaluation."""
    file = tmp_path / "model.csx"
    with running_backend(artifact_dir=tmp_path) as backend:
        assert not file.exists()
        losses(training_step(backend), executor(1))
        losses(evaluation_step(backend), executor(1))
    compiled = json.loads(file.read_text())
    assert list(compiled) == ["train", "eval"]
    assert all(Path(program["artifact"]).is_dir() for program in compiled.values())


def test_validated_model_is_not_compiled(tmp_path: Path) -> None:
    with running_backend(artifact_dir=tmp_path, validate_only=True) as backend:
        losses(training_step(backend), executor(1))
    assert not (tmp_path / "model.csx").exists()


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an artifact folder only what the program asks for is made, below cerebras_logs."""
    monkeypatch.chdir(tmp_path)
    with running_backend() as backend:
        loop = executor(1)
        losses(training_step(backend), loop)
        assert not list(tmp_path.iterdir())
        assert loop.artifact_dir == tmp_path / "cerebras_logs" / "executors" / "000001"
        assert loop.artifact_dir.is_dir()


def test_artifact_folder_can_be_changed(tmp_path: Path) -> None:
    """Later loops have their folders there; compile_dir stays where it is."""
    with running_backend(artifact_dir=tmp_path / "a", compile_dir=tmp_path / "c") as backend:
        backend.artifact_dir = tmp_path / "b"
        losses(training_step(backend), executor(1))
        assert backend.session.settings.cache is not None
        assert backend.session.settings.cache.root == tmp_path / "c"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c"]


def test_artifact_folder_is_the_second_argument(tmp_path: Path) -> None:
    """As in programs written for the real machine."""
    backend = cstorch.backend("CPU", str(tmp_path))
    assert backend.artifact_dir == tmp_path
    backend.shutdown()
