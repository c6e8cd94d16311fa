"""Files are there whole or not at all."""

import json
from pathlib import Path

import pytest

from waferstream.reports.files import replacing, write_json


def test_json_takes_the_place_of_the_old_file(tmp_path: Path) -> None:
    """The folder then holds the new file and nothing else."""
    path = tmp_path / "numbers.json"
    path.write_text("old")
    write_json(path, {"steps": (1, 2), "folder": tmp_path})
    assert json.loads(path.read_text()) == {"steps": [1, 2], "folder": str(tmp_path)}
    assert list(tmp_path.iterdir()) == [path]


def test_values_that_are_not_finite_leave_valid_json(tmp_path: Path) -> None:
    """JSON has no NaN: strict readers must not stumble over a diverged loss."""
    path = tmp_path / "numbers.json"
    write_json(path, [float("nan"), float("inf"), 1.5])
    assert path.read_text().split() == ["[", '"NaN",', '"Infinity",', "1.5", "]"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither half a file nor a temporary one."""
    path = tmp_path / "page.html"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
