"""Dead PEs and links: placement avoids them, programs do not notice but for the time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric import Defects, Fabric, run
from csnode.fabric.collectives import all_reduce_2d, chain
from csnode.fabric.defects import random_defects, read_defects
from timing.hardware.fabric import FabricSpec, Wse3Fabric
from wsc.core.errors import ApplianceResourceExhausted, ConfigError

SMALL = FabricSpec(rows=10, columns=12)
HEADER = "kind,row,column,direction\n"


def all_reduced(fabric):
    data = np.random.default_rng(0).normal(size=(fabric.rows, fabric.columns, 5))
    program = all_reduce_2d(fabric, chain(fabric.columns), chain(fabric.rows), 5)
    outcome = run(program, {"x": data})
    return outcome.cycles, outcome.read("x")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 7), columns=st.integers(1, 7))
def test_values_do_not_change_and_time_does_not_shrink(seed, rows, columns):
    """A wafer with 5 % dead PEs and links computes the same bits, never sooner."""
    healthy_cycles, healthy = all_reduced(Fabric(rows, columns, SMALL))
    cycles, values = all_reduced(
        Fabric(rows, columns, SMALL, random_defects(SMALL, seed, 0.95, 0.95))
    )
    np.testing.assert_array_equal(values, healthy)
    assert cycles >= healthy_cycles


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_only_working_pes_are_used(seed):
    """Each logical PE has a working PE of its own, west to east in one physical row."""
    defects = random_defects(SMALL, seed, 0.9, 1.0)
    placement = Fabric(4, 8, SMALL, defects).placement
    used = list(zip(placement.row.ravel().tolist(), placement.column.ravel().tolist(), strict=True))
    assert len(set(used)) == 32
    assert not set(used) & defects.pes
    assert (np.diff(placement.column, axis=1) > 0).all()
    assert (np.diff(placement.row, axis=0) > 0).all()


def test_a_dead_pe_is_shifted_past_and_its_row_is_one_hop_longer():
    """One dead PE in row 0: its neighbours are three hops apart, around it; others stay at one.

    West to east around (0, 3): south, east, east, north are four hops.
    """
    fabric = Fabric(3, 6, SMALL, Defects(frozenset({(0, 3)})))
    assert fabric.placement.column[0].tolist() == [0, 1, 2, 4, 5, 6]
    assert fabric.east_cycles.tolist() == [[1, 1, 4, 1, 1], [1] * 5, [1] * 5]
    assert fabric.south_cycles.tolist() == [[1, 1, 1, 2, 2, 2], [1] * 6]


def test_a_dead_link_is_gone_around():
    """Two hops around the corner become three, and turns cost on a machine where they do."""
    link = ((0, 0), (0, 1))
    assert Fabric(2, 2, SMALL, Defects(links=frozenset({link}))).east_cycles[0, 0] == 3
    wse3 = Wse3Fabric(rows=10, columns=12)
    around = Fabric(2, 2, wse3, Defects(links=frozenset({link}))).east_cycles[0, 0]
    assert around == 3 * wse3.hop_cycles + 2 * wse3.turn_cycles


def test_a_row_without_working_pes_is_left_out():
    """Logical rows 2 and 3 lie on physical rows 3 and 4, two hops from row 1."""
    dead = frozenset((2, column) for column in range(11))
    fabric = Fabric(4, 6, SMALL, Defects(dead))
    assert fabric.placement.row[:, 0].tolist() == [0, 1, 3, 4]
    assert (fabric.south_cycles[1] > 10 - np.arange(6)).all()


def test_pes_that_are_cut_off_are_not_used():
    """A whole dead row separates two rows in the north from seven in the south, which are used."""
    dead = frozenset((2, column) for column in range(SMALL.columns))
    assert Fabric(7, 6, SMALL, Defects(dead)).placement.row[:, 0].tolist() == list(range(3, 10))
    with pytest.raises(ApplianceResourceExhausted, match="does not fit"):
        Fabric(8, 6, SMALL, Defects(dead))


def test_a_region_larger_than_what_works_is_refused_with_the_numbers():
    """All PEs of a row dead: ten rows cannot be placed any more; nor can a larger wafer's."""
    dead = frozenset((2, column) for column in range(SMALL.columns))
    with pytest.raises(ApplianceResourceExhausted, match="3 rows have none"):
        Fabric(10, 6, SMALL, Defects(dead))
    with pytest.raises(ApplianceResourceExhausted, match="no part of the wafer"):
        Fabric(11, 6, SMALL)


def test_the_same_seed_gives_the_same_wafer():
    """And about as many defects as the yield says."""
    spec = FabricSpec()
    first, second = (random_defects(spec, 5, 0.999) for _ in range(2))
    assert first == second != random_defects(spec, 6, 0.999)
    assert abs(len(first.pes) - 745.5) < 4 * 745.5**0.5


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_file_of_defects_is_read(tmp_path, start):
    """PEs and links with their direction; empty lines and a byte order mark do not matter."""
    path = tmp_path / "wafer.csv"
    path.write_text(start + HEADER + "pe,1,2,\n\nlink,3,4,east\nlink,3,4,south\n", "utf-8")
    assert read_defects(path, SMALL) == Defects(
        frozenset({(1, 2)}), frozenset({((3, 4), (3, 5)), ((3, 4), (4, 4))})
    )


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("pe,1,2,east", "pe,ROW,COLUMN"),
        ("pe,1", "pe,ROW,COLUMN"),
        ("pe,-1,2,", "pe,ROW,COLUMN"),
        ("link,1,2,up", "east|south"),
        ("core,1,2,", "pe,ROW,COLUMN"),
        ("pe,10,2,", "rows 0 to 9"),
        ("link,1,11,east", "columns 0 to 11"),
        ("p" * 200_000 + ",1,2,", "pe,ROW,COLUMN"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, rule):
    """The error names the file, the line and the rule."""
    path = tmp_path / "wafer.csv"
    path.write_text(HEADER + "pe,0,0,\n" + line + "\n")
    with pytest.raises(ConfigError) as caught:
        read_defects(path, SMALL)
    assert caught.value.where == f"{path}, line 3"
    assert rule in caught.value.rule


@pytest.mark.parametrize(("line", "length"), [("row", 3), ("column", 4)])
def test_a_wafer_that_falls_in_two_is_refused(tmp_path, line, length):
    """With file and row, or column, of which nothing works; a single working PE will do."""
    places = [(2, across) if line == "row" else (across, 2) for across in range(length)]
    pes = [f"pe,{row},{column},\n" for row, column in places]
    path, spec = tmp_path / "map.csv", FabricSpec(rows=4, columns=3)
    path.write_text("kind,row,column,direction\n" + "".join(pes[1:]))
    assert len(read_defects(path, spec).pes) == length - 1
    path.write_text("kind,row,column,direction\n" + "".join(pes))
    with pytest.raises(ConfigError, match=f"all PEs of a {line} are dead") as caught:
        read_defects(path, spec)
    assert (caught.value.where, caught.value.value) == (str(path), f"{line} 2, {length} PEs")


def test_files_that_are_no_lists_of_defects_are_refused(tmp_path):
    """A missing file, an empty one, and one with other columns."""
    path = tmp_path / "wafer.csv"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_defects(path, SMALL)
    for text in ("", "row,column\n1,2\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="line 1"):
            read_defects(path, SMALL)


def test_yields_and_places_are_checked():
    """A yield above 1, and a defect on another wafer."""
    with pytest.raises(ConfigError, match="pe_yield"):
        random_defects(SMALL, 0, 1.5)
    with pytest.raises(ConfigError, match="outside of the wafer"):
        Fabric(2, 2, SMALL, Defects(frozenset({(99, 0)})))
