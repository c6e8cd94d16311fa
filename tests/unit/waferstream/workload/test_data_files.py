"""Files of a dataset are found in one order."""

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.workload.data_files import find_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.md", "deep/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(folder: Path, pattern: str, *suffixes: str) -> list[str]:
    return [str(file.relative_to(folder)) for file in find_files(pattern, suffixes)]


def test_find_files_searches_a_folder_recursively_in_order(folder: Path) -> None:
    """Files with the suffixes, each once, in an order that does not depend on the file system."""
    assert names(folder, str(folder), ".txt") == ["a.txt", "b.txt", "deep/d.txt"]
    assert names(folder, str(folder), ".txt", "d.txt") == ["a.txt", "b.txt", "deep/d.txt"]


def test_find_files_returns_a_file_with_any_suffix(folder: Path) -> None:
    """The suffixes apply to folders only."""
    assert names(folder, str(folder / "c.md"), ".txt") == ["c.md"]


def test_find_files_glob_matches_files_only(folder: Path) -> None:
    """Folders that match a glob are not files."""
    assert names(folder, f"{folder}/*", ".txt") == ["a.txt", "b.txt", "c.md"]


@pytest.mark.parametrize("pattern", ["missing", "*.h5", "deep"])
def test_find_files_without_a_match_is_refused(folder: Path, pattern: str) -> None:
    """A missing file, a glob without match, and a folder without data files."""
    with raises(DataError, "data-file-not-found") as caught:
        find_files(str(folder / pattern), [".h5"])
    assert caught.value.where == str(folder / pattern)
    assert caught.value.rule
    assert caught.value.remedy
