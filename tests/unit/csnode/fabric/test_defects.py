"""Random defects, and maps of defects."""

from __future__ import annotations

from pathlib import Path

import pytest

from csnode.fabric.defects import Defects, random_defects, read_defects
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2

SMALL = override(WSE2, rows=10, columns=12)


HEADER = "kind,row,column,direction\n"


def test_random_defects_repeat_with_the_seed() -> None:
    """The same seed gives the same wafer, with about as many defects as the yield says."""
    spec = WSE2
    first, second = (random_defects(spec, 5, 0.999) for _ in range(2))
    assert first == second != random_defects(spec, 6, 0.999)
    assert abs(len(first.pes) - 745.5) < 4 * 745.5**0.5


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_read_defects_reads_pes_and_links(tmp_path: Path, start: str) -> None:
    """PEs and links with their direction; empty lines and a byte order mark are ignored."""
    path = tmp_path / "wafer.csv"
    path.write_text(start + HEADER + "pe,1,2,\n\nlink,3,4,east\nlink,3,4,south\n", "utf-8")
    assert read_defects(path, SMALL) == Defects(
        frozenset({(1, 2)}), frozenset({((3, 4), (3, 5)), ((3, 4), (4, 4))})
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("pe,1,2,east", "defect-map-line"),
        ("pe,1", "defect-map-line"),
        ("pe,-1,2,", "defect-map-line"),
        ("link,1,2,up", "defect-map-line"),
        ("core,1,2,", "defect-map-line"),
        ("pe,10,2,", "defect-outside-wafer"),
        ("link,1,11,east", "defect-outside-wafer"),
        ("p" * 200_000 + ",1,2,", "defect-map-line"),
    ],
)
def test_read_defects_names_a_wrong_line(tmp_path: Path, line: str, code: str) -> None:
    """The error names the file and the line, and has the code of the rule."""
    path = tmp_path / "wafer.csv"
    path.write_text(HEADER + "pe,0,0,\n" + line + "\n")
    with raises(ConfigError, code) as caught:
        read_defects(path, SMALL)
    assert caught.value.where == f"{path}, line 3"


@pytest.mark.parametrize(("line", "length"), [("row", 3), ("column", 4)])
def test_read_defects_refuses_a_dead_row_or_column(tmp_path: Path, line: str, length: int) -> None:
    """The error names file and row or column; a single working PE is enough."""
    places = [(2, across) if line == "row" else (across, 2) for across in range(length)]
    pes = [f"pe,{row},{column},\n" for row, column in places]
    path, spec = tmp_path / "map.csv", override(WSE2, rows=4, columns=3)
    path.write_text("kind,row,column,direction\n" + "".join(pes[1:]))
    assert len(read_defects(path, spec).pes) == length - 1
    path.write_text("kind,row,column,direction\n" + "".join(pes))
    with raises(ConfigError, "defect-map-splits-wafer") as caught:
        read_defects(path, spec)
    assert (caught.value.where, caught.value.value) == (str(path), f"{line} 2, {length} PEs")


def test_read_defects_refuses_other_files(tmp_path: Path) -> None:
    """A missing file, an empty one, and one with other columns."""
    path = tmp_path / "wafer.csv"
    with raises(ConfigError, "defect-map-unreadable"):
        read_defects(path, SMALL)
    for text in ("", "row,column\n1,2\n"):
        path.write_text(text)
        with raises(ConfigError, "defect-map-header"):
            read_defects(path, SMALL)


def test_defects_check_yields_and_coordinates() -> None:
    """A yield above 1, and a defect outside the wafer."""
    with raises(ConfigError, "yield-out-of-range"):
        random_defects(SMALL, 0, 1.5)
    with raises(ConfigError, "defect-outside-wafer"):
        Fabric(2, 2, SMALL, Defects(frozenset({(99, 0)})))
