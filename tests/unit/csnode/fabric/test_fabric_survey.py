"""A wafer with defects is, to the rest of the emulator, a smaller one that is whole."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.spec import ClusterSpec
from csnode.fabric.defects import Defects
from csnode.fabric.region import largest_region, place, working_wafer
from timing.cost import best_grid
from timing.hardware import CS2, DefectSpec, FabricSpec, WaferSpec
from timing.kernels.op_costs import op_cycles
from wsc.core.errors import ApplianceResourceExhausted, ConfigError
from wsc.core.program import OpWork

FABRIC = FabricSpec(columns=10, rows=20)


def wafer(**defects):
    """200 cores of 48 KiB."""
    return WaferSpec(
        fabric=FABRIC, cores=200, sram_bytes=200 * 48 * 1024, defects=DefectSpec(**defects)
    )


def test_a_wafer_that_works_is_left_alone():
    """Not even copied."""
    assert working_wafer(CS2) is CS2


def test_a_dead_pe_costs_its_row_or_a_column(tmp_path):
    """Whichever is less: nine columns of twenty rows, or ten columns of nineteen."""
    (tmp_path / "map.csv").write_text("kind,row,column,direction\npe,3,4,\n")
    left = working_wafer(wafer(map=tmp_path / "map.csv"))
    assert (left.fabric.columns, left.fabric.rows) == (10, 19)
    assert (left.cores, left.sram_bytes) == (190, 190 * 48 * 1024)
    assert left.defects.is_none


def test_what_is_left_of_cores_and_sram_is_whole():
    """A share that does not come out even is rounded down."""
    odd = wafer(pe_yield=0.99, seed=1).model_copy(update={"cores": 201, "sram_bytes": 1001})
    left = working_wafer(odd)
    assert left.fabric.num_pes < FABRIC.num_pes
    assert left.cores == int(201 * left.fabric.num_pes / 200)
    assert left.sram_bytes == int(1001 * left.fabric.num_pes / 200)


def test_the_same_seed_gives_the_same_wafer():
    """A resolved configuration can be repeated."""
    assert working_wafer(wafer(pe_yield=0.9, seed=5)) == working_wafer(wafer(pe_yield=0.9, seed=5))


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=30))
def test_the_largest_region_can_be_placed_and_no_larger_one(dead):
    """By trying all of them."""
    spec = FabricSpec(columns=7, rows=6)
    defects = Defects(pes=frozenset(dead))

    def fits(rows, columns):
        try:
            place(spec, defects, rows, columns)
        except ApplianceResourceExhausted:
            return False
        return True

    region = largest_region(spec, defects)
    assert fits(region.rows, region.columns)
    assert region.mean_hops >= 1
    sizes = [(r, c) for r in range(1, 7) for c in range(1, 8)]
    larger = [size for size in sizes if size[0] * size[1] > region.rows * region.columns]
    assert not any(fits(*size) for size in larger)


def test_a_wafer_in_thousands_of_pieces_is_surveyed_at_once():
    """A wafer of one row falls apart at every dead PE; the longest piece is what is left."""
    row = FabricSpec(rows=1, columns=200_000)
    dead = frozenset((0, column) for column in range(0, 100_000, 2))
    start_s = time.perf_counter()
    assert largest_region(row, Defects(pes=dead))[:2] == (1, 100_001)
    assert time.perf_counter() - start_s < 10


def test_a_wafer_of_which_nothing_works_is_refused():
    """With the numbers."""
    everything = frozenset((row, column) for row in range(20) for column in range(10))
    with pytest.raises(ApplianceResourceExhausted, match="nothing of the wafer works") as caught:
        largest_region(FABRIC, Defects(pes=everything))
    assert caught.value.value == "200 dead PEs of 200"


def test_defects_have_one_origin(tmp_path):
    """A map and random ones together would hide one behind the other."""
    with pytest.raises(ConfigError, match="from a file or at random"):
        DefectSpec(map=tmp_path / "map.csv", pe_yield=0.99)
    with pytest.raises(ValueError, match=r"greater than or equal to 0\.8"):
        DefectSpec(pe_yield=0.0)


def test_a_cluster_is_emulated_on_what_works(tmp_path):
    """cluster.yaml names the defects; costs see the grid that is left, and it costs more."""
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


def test_a_map_that_is_missing_is_named(tmp_path):
    """Before anything starts."""
    defects = {"map": str(tmp_path / "none.csv")}
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        ClusterSpec.model_validate({"machine": {"system": {"defects": defects}}})
    assert "none.csv" in str(caught.value.where)
