"""Files are replaced atomically."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waferstream.host import files
from waferstream.host.files import final_path, replacing, write_json


def test_write_json_replaces_the_old_file(tmp_path: Path) -> None:
    """The folder then holds the new file and nothing else."""
    path = tmp_path / "numbers.json"
    path.write_text("old")
    write_json(path, {"steps": (1, 2), "folder": tmp_path})
    assert json.loads(path.read_text()) == {"steps": [1, 2], "folder": str(tmp_path)}
    assert list(tmp_path.iterdir()) == [path]


def test_write_json_keeps_nan_valid_json(tmp_path: Path) -> None:
    """JSON has no NaN: strict readers must not stumble over a diverged loss."""
    path = tmp_path / "numbers.json"
    write_json(path, [float("nan"), float("inf"), 1.5])
    assert path.read_text().split() == ["[", '"NaN",', '"Infinity",', "1.5", "]"]


def test_partial_file_has_a_final_path(tmp_path: Path) -> None:
    """Also a report beside it; other files, such as hidden ones, stay as they are."""
    with replacing(tmp_path / "c.1.mdl") as partial:
        partial.touch()
        assert final_path(partial) == tmp_path / "c.1.mdl"
        assert final_path(partial.with_name(f"{partial.name}.wgt-0")) == tmp_path / "c.1.mdl"
    for other in (tmp_path / ".c.partial", tmp_path / "c.1.mdl"):
        assert final_path(other) == other


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_error_of_replacing_names_the_file(folder: str, tmp_path: Path) -> None:
    """In a folder that does not exist, or that is a file: not the one that would be renamed."""
    (tmp_path / "file").write_text("x")
    path = tmp_path / folder / "page.html"
    with pytest.raises(OSError, match="page") as caught, replacing(path) as partial:
        partial.write_text("new")
    assert caught.value.filename == str(path)


def test_failed_replacing_keeps_the_old_file(tmp_path: Path) -> None:
    """Neither half a file nor a temporary one."""
    path = tmp_path / "page.html"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise OSError(errno.ENOSPC, "disk full")

    with pytest.raises(OSError, match="disk full") as caught:
        write_half()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_durable_replacing_flushes_the_file_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure leaves the whole file or none: the bytes reach the disk before the name."""
    flushed: list[str] = []
    monkeypatch.setattr(files, "_flush", lambda path: flushed.append(path.name))
    with replacing(tmp_path / "page.html", durable=True) as partial:
        partial.write_text("new")
        assert flushed == []
    assert flushed == [f".page.html.{os.getpid()}.partial", tmp_path.name]
    with replacing(tmp_path / "page.html") as partial:
        partial.write_text("newer")
    assert len(flushed) == 2


def test_several_processes_can_replace_a_file_at_a_time(tmp_path: Path) -> None:
    """The last one counts; what a killed one has left is removed, and no more."""
    path = tmp_path / "page.html"
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / f".page.html.{ended.pid}.partial").touch()
    other = tmp_path / f".page.html.{os.getppid()}.partial"
    other.write_text("of another process")
    with replacing(path) as partial:
        assert sorted(tmp_path.iterdir()) == [other]
        partial.write_text("mine")
    assert path.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [other, path]
