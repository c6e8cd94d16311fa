"""Checkpoints are written atomically, and no failure loses an earlier one."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import appliance.checkpoints.folder as folder_module
from appliance.checkpoints.folder import INDEX_NAME, CheckpointFolder
from tests.support.errors import raises
from tests.support.files.checkpoint_files import flip_in
from tests.support.files.checkpoint_folders import fill, save, visible
from waferstream.checkpoint.parts import Part
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.config import load_yaml
from waferstream.core.errors import CheckpointError, ConfigError


def test_checkpoint_gets_its_name_when_complete(tmp_path: Path) -> None:
    """While it is written only a hidden partial file exists; then the final name and the index."""
    folder = CheckpointFolder(tmp_path / "model_dir")
    with folder.draft(5) as draft:
        fill(draft.partial, 5)
        assert visible(folder.path) == [f".checkpoint_5.mdl.{os.getpid()}.partial"]
        assert folder.newest() is None
    assert visible(folder.path) == ["checkpoint_5.mdl", INDEX_NAME]
    assert folder.newest() == draft.final == folder.path / "checkpoint_5.mdl"
    (listed,) = load_yaml(folder.path / INDEX_NAME)["checkpoints"]
    assert (listed["step"], listed["file"]) == (5, "checkpoint_5.mdl")


def test_existing_checkpoint_name_gets_the_time_appended(tmp_path: Path) -> None:
    """Saving a step again never overwrites; the copy is found by its step and is the newest."""
    folder = CheckpointFolder(tmp_path)
    finals = [save(folder, 5) for _ in range(3)]
    assert len(set(finals)) == 3
    stamp = finals[1].stem.removeprefix("checkpoint_5_")
    assert abs(datetime.strptime(stamp + "+0000", "%Y%m%d_%H%M%S%z") - datetime.now(UTC)).days < 1
    assert folder.newest() == finals[2]
    (tmp_path / INDEX_NAME).unlink()
    assert [entry.step for entry in folder.entries()] == [5, 5, 5]


def test_damaged_checkpoints_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest readable one is found, and the log says what is wrong with the others."""
    folder = CheckpointFolder(tmp_path)
    first, second, third = (save(folder, step) for step in (1, 2, 3))
    second.write_bytes(second.read_bytes()[:-1])
    third.write_text("no checkpoint")
    with caplog.at_level(logging.WARNING):
        assert folder.newest() == first
    assert "checkpoint_3.mdl" in caplog.text
    assert "checkpoint_2.mdl" in caplog.text
    first.unlink()
    assert folder.newest() is None


def test_checkpoint_with_a_flipped_bit_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The previous one is taken, and the log names file and tensor."""
    folder = CheckpointFolder(tmp_path)
    first, second = save(folder, 1), save(folder, 2)
    flip_in(second, np.full(3, 2, np.float32).tobytes())
    assert folder.newest() == first
    assert "checkpoint_2.mdl" in caplog.text
    assert "'model.w'" in caplog.text


@pytest.mark.parametrize(
    "name", ["../outside.mdl", "{path}/outside.mdl", "sub/x.mdl", "..", "a\0b"]
)
def test_index_cannot_name_files_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Such a file is neither resumed from nor removed."""
    outside = tmp_path / "outside.mdl"
    fill(outside, 9)
    folder = CheckpointFolder(tmp_path / "model_dir", keep=1)
    first = save(folder, 1)
    index = load_yaml(folder.path / INDEX_NAME)
    foreign = {**index["checkpoints"][0], "file": name.format(path=tmp_path)}
    foreign["time"] = "2999-01-01T00:00:00Z"
    text = yaml.safe_dump({"checkpoints": [foreign, *index["checkpoints"]]})
    (folder.path / INDEX_NAME).write_text(text)
    assert folder.newest() == first
    assert "outside of its folder" in caplog.text
    save(folder, 2)
    assert outside.exists()
    assert not first.exists()


def test_only_files_called_like_checkpoints_are_removed(tmp_path: Path) -> None:
    """An index that lists another file of the folder does not remove it."""
    folder = CheckpointFolder(tmp_path, keep=1)
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    entry = {"step": 1, "file": notes.name, "time": "2020-01-01T00:00:00Z"}
    (tmp_path / INDEX_NAME).write_text(yaml.safe_dump({"checkpoints": [entry]}))
    save(folder, 2)
    assert notes.exists()


def test_checkpoint_with_nan_is_kept_but_not_continued_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It replaces no good one, and goes with the next."""
    folder = CheckpointFolder(tmp_path, keep=1)
    first = save(folder, 1)
    for step in (2, 3):
        with folder.draft(step) as draft:
            append_tensors(draft.partial, "model", {"w": np.full(3, np.nan, np.float32)})
            write_metadata(draft.partial, {}, [Part(not_finite=("model.w",))])
    assert visible(tmp_path) == ["checkpoint_1.mdl", "checkpoint_3.mdl", INDEX_NAME]
    assert folder.newest() == first
    assert "NaN or infinity in model.w" in caplog.text
    last = save(folder, 4)
    assert visible(tmp_path) == [last.name, INDEX_NAME]


@pytest.mark.parametrize("index", ["checkpoints: [", "checkpoints: 3\n", "other: []\n"])
def test_broken_checkpoint_index_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, index: str
) -> None:
    """The files are the truth: an index that cannot be read costs a warning, no checkpoint."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)
    (tmp_path / INDEX_NAME).write_text(index)
    assert folder.newest() == first
    assert "Ignoring the checkpoint index" in caplog.text
    second = save(folder, 2)
    assert folder.newest() == second


def test_newest_is_the_checkpoint_saved_last(tmp_path: Path) -> None:
    """A run restarted from an early checkpoint continues from its own, not from a later step."""
    folder = CheckpointFolder(tmp_path)
    save(folder, 500)
    restarted = save(folder, 150)
    assert folder.newest() == restarted


class EarlierClock(datetime):
    """A clock that was set back by a year."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> EarlierClock:
        return super().now(tz) - timedelta(days=365)


@pytest.mark.parametrize("has_index", [True, False])
def test_clock_that_was_set_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_index: bool
) -> None:
    """The newest is what was saved last, also where only the files say so."""
    folder = CheckpointFolder(tmp_path)
    save(folder, 500)
    save(folder, 100)
    monkeypatch.setattr(folder_module, "datetime", EarlierClock)
    later = save(folder, 150)
    for path in tmp_path.glob("*.mdl"):
        os.utime(path, (0, 0) if path == later else None)
    if not has_index:
        (tmp_path / INDEX_NAME).unlink()
    assert folder.newest() == later
    assert [entry.step for entry in folder.entries()] == [500, 100, 150]
    assert save(folder, 160) == folder.newest()


def test_files_of_earlier_versions_have_the_order_of_index_and_steps(tmp_path: Path) -> None:
    """Without numbers: a file that was not listed any more is the newest, until one is saved."""
    folder = CheckpointFolder(tmp_path)
    for step in (500, 150, 160):
        fill(tmp_path / f"checkpoint_{step}.mdl", step)
    listed = [
        {"step": step, "file": f"checkpoint_{step}.mdl", "time": f"{year}-01-01T00:00:00Z"}
        for step, year in ((500, 2026), (150, 2020))
    ]
    (tmp_path / INDEX_NAME).write_text(yaml.safe_dump({"checkpoints": listed}))
    assert [entry.step for entry in folder.entries()] == [500, 150, 160]
    (tmp_path / INDEX_NAME).unlink()
    assert [entry.step for entry in folder.entries()] == [150, 160, 500]
    assert save(folder, 155) == folder.newest()


@settings(max_examples=30)
@given(
    steps=st.lists(st.integers(0, 99), unique=True, max_size=6),
    keep=st.one_of(st.none(), st.integers(1, 4)),
)
def test_newest_n_checkpoints_are_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], keep: int | None
) -> None:
    """After any saves exactly the last n remain, in order; files of others are never touched."""
    path = tmp_path_factory.mktemp("model_dir")
    stranger = path / "checkpoint_1000.mdl"
    stranger.write_text("copied here by hand")
    folder = CheckpointFolder(path, keep=keep)
    for step in steps:
        with folder.draft(step) as draft:
            fill(draft.partial, step)
    kept = steps if keep is None else steps[-keep:]
    assert [entry.step for entry in folder.entries() if entry.step < 1000] == kept
    assert sorted(path.glob("checkpoint_*.mdl")) == sorted(
        [stranger, *(path / f"checkpoint_{step}.mdl" for step in kept)]
    )


@pytest.mark.parametrize("pattern", ["ckpt", "{step}/x.mdl", "{step}{step}.mdl", ""])
def test_invalid_checkpoint_name_is_refused(tmp_path: Path, pattern: str) -> None:
    """A pattern needs {step} once and no folder."""
    with raises(ConfigError, "checkpoint-name"):
        CheckpointFolder(tmp_path, pattern=pattern)


@pytest.mark.parametrize("pattern", ["run{x}_{step}.mdl", "ckpt.{step}", "{step}"])
def test_checkpoint_name_patterns_are_found_without_index(tmp_path: Path, pattern: str) -> None:
    """Files of any pattern are found without the index, repeated steps included."""
    folder = CheckpointFolder(tmp_path, pattern=pattern)
    save(folder, 12)
    save(folder, 12)
    (tmp_path / INDEX_NAME).unlink()
    assert [entry.step for entry in folder.entries()] == [12, 12]


def test_keep_zero_checkpoints_is_refused(tmp_path: Path) -> None:
    """keep 0 would remove the checkpoint just written."""
    with raises(ConfigError, "keep-too-few"):
        CheckpointFolder(tmp_path, keep=0)


def test_folder_that_cannot_be_made_is_a_checkpoint_error(tmp_path: Path) -> None:
    """model_dir below a file: the error names the path."""
    (tmp_path / "file").write_text("")
    folder = CheckpointFolder(tmp_path / "file" / "model_dir")
    with raises(CheckpointError, "checkpoint-not-writable") as caught:
        folder.prepare()
    assert caught.value.where == str(folder.path)


def test_absent_folder_has_no_checkpoint(tmp_path: Path) -> None:
    """Asking for the newest creates nothing."""
    assert CheckpointFolder(tmp_path / "absent").newest() is None
    assert not (tmp_path / "absent").exists()
