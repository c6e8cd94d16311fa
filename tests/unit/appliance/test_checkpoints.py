"""Checkpoints are written atomically, and no failure loses an earlier one."""

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
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.checkpoints import INDEX_NAME, LOCK_NAME, CheckpointFolder, check_keys
from tests.support.checkpoint_files import flip_in
from tests.support.errors import raises
from wsc.checkpoint.parts import Part
from wsc.checkpoint.reader import Reader
from wsc.checkpoint.writer import append_tensors, write_metadata
from wsc.core.config import load_yaml
from wsc.core.errors import CheckpointError, ConfigError


def fill(path: Path, step: int) -> None:
    append_tensors(path, "model", {"w": np.full(3, step, np.float32)})
    write_metadata(path, {"global_step": step})


def save(folder: CheckpointFolder, step: int) -> Path:
    with folder.draft(step) as draft:
        fill(draft.partial, step)
    return draft.final


def visible(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.name != LOCK_NAME)


def test_checkpoint_gets_its_name_when_complete(tmp_path: Path) -> None:
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
    """ENOSPC while writing or flushing: CheckpointError with a remedy, no partial file left."""
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
    assert visible(tmp_path) == ["checkpoint_1.mdl", INDEX_NAME]
    assert folder.newest() == first
    assert save(folder, 2).exists()


DYING_WRITER = """
import os, sys
from pathlib import Path
import numpy as np
from appliance import checkpoints
from wsc.checkpoint.writer import append_tensors, write_metadata
folder, moment = checkpoints.CheckpointFolder(Path(sys.argv[1])), sys.argv[2]
die = lambda *_: os._exit(9)
if moment == "before rename":
    Path.replace = die
if moment == "before index":
    checkpoints.CheckpointFolder._index = die
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


keys = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


@given(keys, keys)
def test_check_keys_accepts_equal_keys_only(expected: list[str], found: list[str]) -> None:
    """In any order; one more or one less is refused."""
    try:
        check_keys(expected, found, strict=True, where="c.mdl")
    except CheckpointError:
        assert set(expected) != set(found)
    else:
        assert set(expected) == set(found)


def test_strict_check_keys_names_the_difference() -> None:
    """It shows both lists, shortened."""
    with raises(CheckpointError, "checkpoint-keys-mismatch") as caught:
        check_keys(["a", "b"], ["b", *"uvwxyz"], strict=True, where="c.mdl")
    assert caught.value.where == "c.mdl"
    assert caught.value.value == "missing: a; unexpected: u, v, w, x, y, ... (6 in total)"


def test_check_keys_takes_optional_keys_or_not() -> None:
    """Tied names and buffers may be missing, and are not unexpected."""
    for found in (["a"], ["a", "tied"]):
        check_keys(["a"], found, optional=["tied"], strict=True, where="c.mdl")
    with raises(CheckpointError, "checkpoint-keys-mismatch"):
        check_keys(["a"], ["a", "other"], optional=["tied"], strict=True, where="c.mdl")


def test_lenient_check_keys_warns(caplog: pytest.LogCaptureFixture) -> None:
    """The difference goes to the log of the run."""
    check_keys(["a"], ["b"], strict=False, where="c.mdl")
    assert "missing: a; unexpected: b" in caplog.text
    assert caplog.records[0].name == "waferstream"
