"""Folders of data are copied to the disk of an input worker's host."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cstorch import distributed
from modelzoo.data.files.folders import cached
from tests.support.errors import raises
from waferstream.core.errors import DataError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file in a folder; the cache is beside it."""
    monkeypatch.setattr(distributed, "WORKER_CACHE_ROOT", str(tmp_path / "cache"))
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "a.h5").write_text("old")
    return tmp_path / "data"


def test_copy_is_renewed_when_the_data_change(data: Path) -> None:
    copy = Path(cached(str(data)))
    assert copy.is_relative_to(distributed.WORKER_CACHE_ROOT)
    assert (copy / "inner" / "a.h5").read_text() == "old"
    first = (copy / "inner" / "a.h5").stat().st_ino
    assert (Path(cached(str(data))) / "inner" / "a.h5").stat().st_ino == first
    (data / "inner" / "a.h5").write_text("newer")
    assert (Path(cached(str(data))) / "inner" / "a.h5").read_text() == "newer"


def test_files_are_read_in_place(data: Path) -> None:
    file = str(data / "inner" / "a.h5")
    assert cached(file) == file


def test_full_disk_is_an_error(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 80 % of the disk are filled."""
    usage = SimpleNamespace(total=100, used=79, free=21)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with raises(DataError, "worker-cache-full"):
        cached(str(data))
