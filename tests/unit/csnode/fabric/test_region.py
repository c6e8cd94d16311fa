"""Regions of a wafer with defects, and the wafer that is left for cost models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.spec import ClusterSpec
from csnode.fabric.collectives.programs import all_reduce_2d
from csnode.fabric.collectives.trees import chain
from csnode.fabric.defects import Defects, random_defects
from csnode.fabric.dtypes import Array
from csnode.fabric.region import Fabric, Region, largest_region, working_region, working_wafer
from csnode.fabric.simulator.execution import run
from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.program.segment import OpWork
from waferstream.machine.cost import best_grid
from waferstream.machine.hardware import CS2, DefectSpec, WaferSpec, override
from waferstream.machine.hardware.fabric import WSE2
from waferstream.machine.kernels.op_costs import op_cycles

FABRIC = override(WSE2, columns=10, rows=20)


SMALL = override(WSE2, rows=10, columns=12)


def wafer(**defects: Any) -> WaferSpec:
    """Return a wafer of 200 cores of 48 KiB with the given defects."""
    return override(
        CS2, fabric=FABRIC, cores=200, sram_bytes=200 * 48 * 1024, defects=DefectSpec(**defects)
    )


def all_reduced(fabric: Fabric) -> tuple[int, Array]:
    data = np.random.default_rng(0).normal(size=(fabric.rows, fabric.columns, 5))
    program = all_reduce_2d(fabric, chain(fabric.columns), chain(fabric.rows), 5)
    outcome = run(program, {"x": data})
    return outcome.cycles, outcome.read("x")


def test_working_wafer_returns_a_wafer_without_defects() -> None:
    """The same object is returned, not a copy."""
    assert working_wafer(CS2) is CS2


def test_working_wafer_drops_the_row_of_a_dead_pe(tmp_path: Path) -> None:
    """Ten columns of nineteen rows are more than nine columns of twenty rows."""
    (tmp_path / "map.csv").write_text("kind,row,column,direction\npe,3,4,\n")
    left = working_wafer(wafer(map=tmp_path / "map.csv"))
    assert (left.fabric.columns, left.fabric.rows) == (10, 19)
    assert (left.cores, left.sram_bytes) == (190, 190 * 48 * 1024)
    assert left.defects.is_none


def test_working_wafer_rounds_cores_and_sram_down() -> None:
    """Uneven shares of cores and SRAM are rounded down."""
    odd = wafer(pe_yield=0.99, seed=1).model_copy(update={"cores": 201, "sram_bytes": 1001})
    left = working_wafer(odd)
    assert left.fabric.num_pes < FABRIC.num_pes
    assert left.cores == int(201 * left.fabric.num_pes / 200)
    assert left.sram_bytes == int(1001 * left.fabric.num_pes / 200)


def test_working_wafer_repeats_with_the_seed() -> None:
    """A resolved configuration is reproducible."""
    assert working_wafer(wafer(pe_yield=0.9, seed=5)) == working_wafer(wafer(pe_yield=0.9, seed=5))


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=30))
def test_largest_region_is_the_largest_that_fits(dead: set[tuple[int, int]]) -> None:
    """Placing every size shows that none larger fits."""
    spec = override(WSE2, columns=7, rows=6)
    defects = Defects(pes=frozenset(dead))

    def fits(rows: int, columns: int) -> bool:
        try:
            working_region(spec, defects, rows, columns)
        except ApplianceResourceExhausted:
            return False
        return True

    region = largest_region(spec, defects)
    assert fits(region.rows, region.columns)
    assert region.mean_hops >= 1
    sizes = [(r, c) for r in range(1, 7) for c in range(1, 8)]
    larger = [size for size in sizes if size[0] * size[1] > region.rows * region.columns]
    assert not any(fits(*size) for size in larger)


def test_largest_region_of_a_wafer_in_thousands_of_pieces() -> None:
    """A wafer of one row splits at every dead PE; the longest piece is the region."""
    row = override(WSE2, rows=1, columns=200_000)
    dead = frozenset((0, column) for column in range(0, 100_000, 2))
    assert largest_region(row, Defects(pes=dead))[:2] == (1, 100_001)


def test_largest_region_needs_a_working_pe() -> None:
    """The error counts dead PEs and all PEs."""
    everything = frozenset((row, column) for row in range(20) for column in range(10))
    with raises(ApplianceResourceExhausted, "no-working-pe") as caught:
        largest_region(FABRIC, Defects(pes=everything))
    assert caught.value.value == "200 dead PEs of 200"


def test_cluster_spec_uses_the_working_wafer(tmp_path: Path) -> None:
    """Defects in cluster.yaml leave a smaller grid, on which an op costs more."""
    machine = {"system": {"name": "CS-3", "defects": {"pe_yield": 0.999, "seed": 3}}}
    found = ClusterSpec.model_validate({"machine": machine}).machine.system
    whole = ClusterSpec.model_validate({"machine": {"system": "CS-3"}}).machine.system
    assert found.fabric.columns < whole.fabric.columns
    work = OpWork("mm", "matmul", 1, (1, 2048, 762, 762), streams=True)
    worn, new = (
        op_cycles(best_grid({work: 1}, system, "bfloat16"), work, "bfloat16").total_cycles
        for system in (found, whole)
    )
    assert worn > new
    assert ClusterSpec.model_validate({"machine": {"system": found}}).machine.system == found


def test_cluster_spec_names_a_missing_defect_map(tmp_path: Path) -> None:
    """The error is raised when the configuration is read."""
    defects = {"map": str(tmp_path / "none.csv")}
    with raises(ConfigError, "defect-map-unreadable") as caught:
        ClusterSpec.model_validate({"machine": {"system": {"defects": defects}}})
    assert "none.csv" in str(caught.value.where)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 7), columns=st.integers(1, 7))
def test_region_with_defects_changes_time_but_no_values(seed: int, rows: int, columns: int) -> None:
    """A wafer with 5 % dead PEs and links computes the same bits, never sooner."""
    healthy_cycles, healthy = all_reduced(Fabric(rows, columns, SMALL))
    cycles, values = all_reduced(
        Fabric(rows, columns, SMALL, random_defects(SMALL, seed, 0.95, 0.95))
    )
    np.testing.assert_array_equal(values, healthy)
    assert cycles >= healthy_cycles


def region_of(fabric: Fabric) -> Region:
    """Return the region of a wafer with defects."""
    assert fabric.region is not None
    return fabric.region


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_region_uses_only_working_pes(seed: int) -> None:
    """Each logical PE has a working PE of its own, west to east in one physical row."""
    defects = random_defects(SMALL, seed, 0.9, 1.0)
    region = region_of(Fabric(4, 8, SMALL, defects))
    used = list(zip(region.row.ravel().tolist(), region.column.ravel().tolist(), strict=True))
    assert len(set(used)) == 32
    assert not set(used) & defects.pes
    assert (np.diff(region.column, axis=1) > 0).all()
    assert (np.diff(region.row, axis=0) > 0).all()


def test_region_shifts_past_a_dead_pe() -> None:
    """One dead PE in row 0: the wire between its neighbours has four hops, others have one.

    West to east around (0, 3): south, east, east, north.
    """
    fabric = Fabric(3, 6, SMALL, Defects(frozenset({(0, 3)})))
    assert region_of(fabric).column[0].tolist() == [0, 1, 2, 4, 5, 6]
    assert fabric.east_cycles.tolist() == [[1, 1, 4, 1, 1], [1] * 5, [1] * 5]
    assert fabric.south_cycles.tolist() == [[1, 1, 1, 2, 2, 2], [1] * 6]


def test_region_skips_a_row_without_working_pes() -> None:
    """Logical rows 2 and 3 lie on physical rows 3 and 4, at least two hops from row 1."""
    dead = frozenset((2, column) for column in range(11))
    fabric = Fabric(4, 6, SMALL, Defects(dead))
    assert region_of(fabric).row[:, 0].tolist() == [0, 1, 3, 4]
    assert (fabric.south_cycles[1] > 10 - np.arange(6)).all()


def test_region_skips_pes_that_are_cut_off() -> None:
    """A dead row separates two rows in the north from seven in the south, which are used."""
    dead = frozenset((2, column) for column in range(SMALL.columns))
    assert region_of(Fabric(7, 6, SMALL, Defects(dead))).row[:, 0].tolist() == list(range(3, 10))
    with raises(ApplianceResourceExhausted, "region-larger-than-working"):
        Fabric(8, 6, SMALL, Defects(dead))


def test_region_must_fit_on_the_working_pes() -> None:
    """A region of ten rows does not fit beside a dead row, nor eleven rows on a wafer of ten."""
    dead = frozenset((2, column) for column in range(SMALL.columns))
    with raises(ApplianceResourceExhausted, "region-larger-than-working") as caught:
        Fabric(10, 6, SMALL, Defects(dead))
    assert "3 rows have none" in str(caught.value.value)
    with raises(ApplianceResourceExhausted, "region-outside-wafer"):
        Fabric(11, 6, SMALL)
