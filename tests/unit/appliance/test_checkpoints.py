"""A checkpoint appears whole or not at all, and nothing that goes wrong costs the one before."""

import errno
import fcntl
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance import checkpoints
from appliance.checkpoints import INDEX_NAME, LOCK_NAME, CheckpointFolder
from memoryx.checkpoint import Reader, append_tensors, write_metadata
from wsc.core.config import load_yaml
from wsc.core.errors import CheckpointError, ConfigError


def fill(path, step):
    append_tensors(path, "model", {"w": np.full(3, step, np.float32)})
    write_metadata(path, {"global_step": step})


def save(folder, step):
    with folder.draft(step) as draft:
        fill(draft.partial, step)
    return draft.final


def visible(path):
    return sorted(file.name for file in path.iterdir() if file.name != LOCK_NAME)


def test_a_checkpoint_gets_its_name_when_it_is_whole(tmp_path):
    """While it is written only a hidden partial file exists; then the final name and the index."""
    folder = CheckpointFolder(tmp_path / "model_dir")
    with folder.draft(5) as draft:
        fill(draft.partial, 5)
        assert visible(folder.path) == [".checkpoint_5.mdl.partial"]
        assert folder.newest() is None
    assert visible(folder.path) == ["checkpoint_5.mdl", INDEX_NAME]
    assert folder.newest() == draft.final == folder.path / "checkpoint_5.mdl"
    (listed,) = load_yaml(folder.path / INDEX_NAME)["checkpoints"]
    assert (listed["step"], listed["file"]) == (5, "checkpoint_5.mdl")


def test_a_name_that_exists_gets_the_time_appended(tmp_path):
    """Saving a step again never overwrites; the copy is found by its step and is the newest."""
    folder = CheckpointFolder(tmp_path)
    finals = [save(folder, 5) for _ in range(3)]
    assert len(set(finals)) == 3
    stamp = finals[1].stem.removeprefix("checkpoint_5_")
    assert abs(datetime.strptime(stamp + "+0000", "%Y%m%d_%H%M%S%z") - datetime.now(UTC)).days < 1
    assert folder.newest() == finals[2]
    (tmp_path / INDEX_NAME).unlink()
    assert [entry.step for entry in folder.entries()] == [5, 5, 5]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failing_block_leaves_nothing(tmp_path, failure):
    """The partial file goes, the error comes out as it is, the previous checkpoint stays."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)

    def fail_half_way():
        with folder.draft(2) as draft:
            fill(draft.partial, 2)
            raise failure

    with pytest.raises(failure):
        fail_half_way()
    assert visible(tmp_path) == ["checkpoint_1.mdl", INDEX_NAME]
    assert folder.newest() == first


@pytest.mark.parametrize("place", ["posix_fallocate", "fsync"])
def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch, place):
    """ENOSPC while writing or flushing: CheckpointError with a remedy, no partial file left."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, place, full)
        with pytest.raises(CheckpointError, match="No space left") as error:
            save(folder, 2)
    assert "free space" in str(error.value)
    assert visible(tmp_path) == ["checkpoint_1.mdl", INDEX_NAME]
    assert folder.newest() == first
    assert save(folder, 2).exists()


DYING_WRITER = """
import os, sys
from pathlib import Path
import numpy as np
from appliance import checkpoints
from memoryx.checkpoint import append_tensors, write_metadata
folder, moment = checkpoints.CheckpointFolder(Path(sys.argv[1])), sys.argv[2]
die = lambda *_: os._exit(9)
if moment == "before rename":
    Path.rename = die
if moment == "before index":
    checkpoints.CheckpointFolder._index = die
with folder.draft(2) as draft:
    append_tensors(draft.partial, "model", {"w": np.ones(3, np.float32)})
    if moment == "between servers":
        die()
    write_metadata(draft.partial, {"global_step": 2})
"""


@pytest.mark.parametrize("moment", ["between servers", "before rename", "before index"])
def test_a_killed_writer_costs_no_checkpoint(tmp_path, moment):
    """Whenever the process dies, newest() is readable; the next run cleans up and can save."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)
    died = subprocess.run(
        [sys.executable, "-c", DYING_WRITER, str(tmp_path), moment],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (died.returncode, died.stderr) == (9, "")
    second = tmp_path / "checkpoint_2.mdl"
    assert folder.newest() == (second if moment == "before index" else first)
    assert Reader(first)["model.w"].tolist() == [1, 1, 1]
    folder.prepare()
    assert not list(tmp_path.glob(".*.partial"))
    third = save(folder, 3)
    assert folder.newest() == third
    expected = [1, 2, 3] if moment == "before index" else [1, 3]
    assert [entry.step for entry in folder.entries()] == expected


def test_prepare_leaves_a_living_writer_alone(tmp_path):
    """A second run that starts in the same folder does not take the first one's partial file."""
    folder = CheckpointFolder(tmp_path)
    with folder.draft(1) as draft:
        fill(draft.partial, 1)
        CheckpointFolder(tmp_path).prepare()
        assert draft.partial.exists()
    assert folder.newest() == draft.final


def test_a_dead_writers_lock_is_no_obstacle(tmp_path):
    """The lock is the kernel's: a lock file without an owner does not block."""
    (tmp_path / LOCK_NAME).touch()
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    with (tmp_path / LOCK_NAME).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_damaged_checkpoints_are_skipped_with_a_warning(tmp_path, caplog):
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


@pytest.mark.parametrize("index", ["checkpoints: [", "checkpoints: 3\n", "other: []\n"])
def test_a_broken_index_is_rebuilt(tmp_path, caplog, index):
    """The files are the truth: an index that cannot be read costs a warning, no checkpoint."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)
    (tmp_path / INDEX_NAME).write_text(index)
    assert folder.newest() == first
    assert "Ignoring the checkpoint index" in caplog.text
    second = save(folder, 2)
    assert folder.newest() == second


def test_newest_is_what_was_saved_last(tmp_path):
    """A run restarted from an early checkpoint continues from its own, not from a later step."""
    folder = CheckpointFolder(tmp_path)
    save(folder, 500)
    restarted = save(folder, 150)
    assert folder.newest() == restarted


@settings(max_examples=30)
@given(
    steps=st.lists(st.integers(0, 99), unique=True, max_size=6),
    keep=st.one_of(st.none(), st.integers(1, 4)),
)
def test_the_newest_n_are_kept(tmp_path_factory, steps, keep):
    """After any saves exactly the last n remain, in order; files of others are never touched."""
    path = tmp_path_factory.mktemp("model_dir")
    stranger = path / "checkpoint_1000.mdl"
    stranger.write_text("copied here by hand")
    folder = CheckpointFolder(path, keep=keep)
    for step in steps:
        with folder.draft(step) as draft:
            draft.partial.write_text(str(step))
    kept = steps if keep is None else steps[-keep:]
    assert [entry.step for entry in folder.entries() if entry.step < 1000] == kept
    assert sorted(path.glob("checkpoint_*.mdl")) == sorted(
        [stranger, *(path / f"checkpoint_{step}.mdl" for step in kept)]
    )


@pytest.mark.parametrize("pattern", ["ckpt", "{step}/x.mdl", "{step}{step}.mdl", ""])
def test_names_that_do_not_work_are_refused(tmp_path, pattern):
    """A pattern needs {step} once and no folder."""
    with pytest.raises(ConfigError, match="checkpoint name"):
        CheckpointFolder(tmp_path, pattern=pattern)


@pytest.mark.parametrize("pattern", ["run{x}_{step}.mdl", "ckpt.{step}", "{step}"])
def test_other_patterns_work(tmp_path, pattern):
    """Files of any pattern are found without the index, repeated steps included."""
    folder = CheckpointFolder(tmp_path, pattern=pattern)
    save(folder, 12)
    save(folder, 12)
    (tmp_path / INDEX_NAME).unlink()
    assert [entry.step for entry in folder.entries()] == [12, 12]


def test_keeping_none_at_all_is_refused(tmp_path):
    """keep 0 would remove the checkpoint just written."""
    with pytest.raises(ConfigError, match="at least one"):
        CheckpointFolder(tmp_path, keep=0)


def test_a_folder_that_cannot_be_made_is_a_checkpoint_error(tmp_path):
    """model_dir below a file: the error names the path."""
    (tmp_path / "file").write_text("")
    folder = CheckpointFolder(tmp_path / "file" / "model_dir")
    with pytest.raises(CheckpointError, match="model_dir"):
        folder.prepare()


def test_an_absent_folder_has_no_checkpoint(tmp_path):
    """Asking for the newest creates nothing."""
    assert CheckpointFolder(tmp_path / "absent").newest() is None
    assert not (tmp_path / "absent").exists()


def test_files_and_folder_are_flushed_in_order(tmp_path, monkeypatch):
    """The bytes reach the disk before the name does, and the name before the index."""
    flushed = []
    flush = checkpoints._flush
    monkeypatch.setattr(
        checkpoints, "_flush", lambda path: (flushed.append(Path(path).name), flush(path))
    )
    save(CheckpointFolder(tmp_path), 1)
    assert flushed == [
        ".checkpoint_1.mdl.partial",
        tmp_path.name,
        f".{INDEX_NAME}.partial",
        tmp_path.name,
    ]
