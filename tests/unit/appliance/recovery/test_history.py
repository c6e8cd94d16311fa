"""Files that are held stay readable, and leave nothing behind."""

import os
from pathlib import Path

import pytest

from appliance.recovery.history import HeldFile
from tests.support.host.processes import descriptors


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_held_file_follows_its_name(tmp_path: Path, temporary: Path) -> None:
    """The path is the name that the file has now; once it is removed, that of a copy."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("content")
    held = HeldFile(first)
    with held.named() as path:
        assert path == first
    first.rename(second)
    with held.named() as path:
        assert path == second
    second.unlink()
    second.write_text("another")
    for _ in range(2):
        with held.named() as path:
            assert path.parent.parent == temporary
            assert path.read_text() == "content"
    held.close()
    assert not list(temporary.iterdir())


def test_a_written_file_has_no_name(temporary: Path) -> None:
    held = HeldFile.written_by(lambda path: path.write_text("content"))
    assert not list(temporary.iterdir())
    with held.named() as path:
        assert path.read_text() == "content"
    held.close()


def test_nobody_else_reads_the_weights(temporary: Path) -> None:
    """The folder of the file is private, whatever the mode of the file."""
    modes: list[int] = []

    def write(path: Path) -> None:
        path.touch()
        modes.append(path.parent.stat().st_mode & 0o777)

    HeldFile.written_by(write).close()
    assert modes == [0o700]


def test_folders_of_killed_processes_are_removed(temporary: Path) -> None:
    """Those of living processes stay; one that cannot be removed does no harm."""
    killed, living, foreign = (
        temporary / f"waferstream-held-{pid}-{name}"
        for pid, name in ((2**22 + 1, "a"), (os.getpid(), "b"), (2**22 + 1, "c"))
    )
    for folder in (killed, living):
        folder.mkdir()
        (folder / "weights.mdl").touch()
    foreign.touch()  # not a folder: rmtree refuses it, as it refuses that of another user
    HeldFile.written_by(Path.touch).close()
    assert set(temporary.iterdir()) == {living, foreign}


def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = descriptors()
    held = HeldFile(tmp_path / "file")
    held.close()
    held.close()
    assert descriptors() <= before
