"""A checkpoint that is not finished leaves the earlier ones and no file of its own."""

import errno
import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.checkpoints.folder import INDEX_NAME, LOCK_NAME, CheckpointFolder
from tests.support.errors import raises
from tests.support.files.checkpoint_folders import fill, save, visible
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import CheckpointError
from waferstream.host import locks


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_failed_draft_leaves_no_file(tmp_path: Path, failure: type[BaseException]) -> None:
    """The partial file goes, the error comes out as it is, the previous checkpoint stays."""
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)

    def fail_half_way() -> None:
        with folder.draft(2) as draft:
            fill(draft.partial, 2)
            raise failure

    with pytest.raises(failure):
        fail_half_way()
    assert visible(tmp_path) == ["checkpoint_1.mdl", INDEX_NAME]
    assert folder.newest() == first


@pytest.mark.parametrize("place", ["posix_fallocate", "fsync"])
def test_full_disk_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """ENOSPC while writing or flushing: CheckpointError with a remedy, no partial file left.

    It names the checkpoint, not the file that is renamed to it.
    """
    folder = CheckpointFolder(tmp_path)
    first = save(folder, 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, place, full)
        with raises(CheckpointError, "checkpoint-not-writable") as error:
            save(folder, 2)
    assert error.value.value == os.strerror(errno.ENOSPC)
    assert error.value.remedy
    assert error.value.where == str(tmp_path / "checkpoint_2.mdl")
    assert visible(tmp_path) == ["checkpoint_1.mdl", INDEX_NAME]
    assert folder.newest() == first
    assert save(folder, 2).exists()


DYING_WRITER = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
import numpy as np
from appliance.checkpoints.folder import CheckpointFolder
from waferstream.checkpoint.writer import append_tensors, write_metadata
folder, moment = CheckpointFolder(Path(sys.argv[1])), sys.argv[2]
die = lambda *_: os._exit(9)
if moment == "before rename":
    Path.replace = die
if moment == "before index":
    CheckpointFolder._index = die
with folder.draft(2) as draft:
    append_tensors(draft.partial, "model", {"w": np.ones(3, np.float32)})
    if moment == "between servers":
        die()
    write_metadata(draft.partial, {"global_step": 2})
"""


@pytest.mark.parametrize("moment", ["between servers", "before rename", "before index"])
def test_killed_writer_loses_no_earlier_checkpoint(tmp_path: Path, moment: str) -> None:
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


def test_prepare_keeps_the_partial_file_of_a_running_writer(tmp_path: Path) -> None:
    """A second run that starts in the same folder does not take the first one's partial file."""
    folder = CheckpointFolder(tmp_path)
    with folder.draft(1) as draft:
        fill(draft.partial, 1)
        CheckpointFolder(tmp_path).prepare()
        assert draft.partial.exists()
    assert folder.newest() == draft.final


def test_lock_file_of_a_dead_writer_does_not_block(tmp_path: Path) -> None:
    """The lock is the kernel's: a lock file without an owner does not block."""
    (tmp_path / LOCK_NAME).touch()
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    with (tmp_path / LOCK_NAME).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock_of_a_stranger_stops_no_save(tmp_path: Path) -> None:
    """Whoever can read index, folder or an older lock file can lock it."""
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    (tmp_path / LOCK_NAME).chmod(0o644)
    with ExitStack() as stack:
        for path in (tmp_path, tmp_path / INDEX_NAME, tmp_path / LOCK_NAME):
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert save(folder, 2).exists()


def test_lock_of_another_process_is_waited_for_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped keeps it for ever; the error names process and file."""
    monkeypatch.setattr(locks, "LIMIT_S", 0.1)
    folder = CheckpointFolder(tmp_path)
    with folder.draft(1) as draft:
        fill(draft.partial, 1)
        with raises(CheckpointError, "checkpoints-locked") as caught:
            save(CheckpointFolder(tmp_path), 2)
        assert str(os.getpid()) in str(caught.value.value)
        assert caught.value.where == str(tmp_path / LOCK_NAME)


def test_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A folder from a stranger can't make a run empty or create a file elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = CheckpointFolder(tmp_path / "model_dir")
    folder.path.mkdir()
    (folder.path / LOCK_NAME).symlink_to(victim)
    with raises(CheckpointError, "checkpoint-not-writable"):
        folder.prepare()
    assert victim.read_text() == "mine"
