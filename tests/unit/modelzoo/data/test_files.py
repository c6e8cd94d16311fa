"""Data files are found by name, folder or glob, in one order on every host."""

from pathlib import Path

import pytest

from modelzoo.data.files import find_files
from wsc.core.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.md", "deep/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(folder: Path, pattern: str, *suffixes: str) -> list[str]:
    return [str(file.relative_to(folder)) for file in find_files(pattern, suffixes)]


def test_a_folder_is_searched_to_the_bottom_in_sorted_order(folder: Path) -> None:
    """Files with the suffixes, each once, in an order that no file system decides."""
    assert names(folder, str(folder), ".txt") == ["a.txt", "b.txt", "deep/d.txt"]
    assert names(folder, str(folder), ".txt", "d.txt") == ["a.txt", "b.txt", "deep/d.txt"]


def test_a_file_is_itself_whatever_its_suffix(folder: Path) -> None:
    """Who names a file wants that file."""
    assert names(folder, str(folder / "c.md"), ".txt") == ["c.md"]


def test_a_glob_matches_files_only(folder: Path) -> None:
    """Folders that match a glob are not files."""
    assert names(folder, f"{folder}/*", ".txt") == ["a.txt", "b.txt", "c.md"]


@pytest.mark.parametrize("pattern", ["missing", "*.h5", "deep"])
def test_nothing_found_is_an_error_that_names_the_path(folder: Path, pattern: str) -> None:
    """A missing file, a glob without match, and a folder without data are told alike."""
    with pytest.raises(DataError, match="no data file found") as caught:
        find_files(str(folder / pattern), [".h5"])
    assert caught.value.where == str(folder / pattern)
    assert caught.value.rule
    assert caught.value.remedy
