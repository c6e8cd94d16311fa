"""Sections about the machine group what is alike, and state numbers of the plan."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from csnode.engine.spec import LayerRegion
from memoryx.tiers import Holding, Tiers
from swarmx.topology import Tree
from tests.support.programs.small_programs import program, segment
from tests.support.reports.html import Parsed
from tests.support.timing.machines import alone
from waferstream.core.units import format_bytes
from waferstream.machine.attribution import OVERHEAD_NOTE, Attribution
from waferstream.machine.hardware import CS2, MachineSpec
from waferstream.machine.sram import SramPlan, data_bytes
from waferstream.machine.stalls import StreamCheck
from waferstream.reports.machine.drawings import tree_drawing
from waferstream.reports.machine.sections import (
    attribution_section,
    machine_sections,
    region_section,
)
from waferstream.reports.machine.use import LinkLoad, MachineUse, group_layers
from waferstream.reports.page import Page

STALLED = StreamCheck("layer.0", "forward", 1 << 30, 0, 10**10, 10**11)


def use(num_csx: int) -> MachineUse:
    step = program(segments=tuple(replace(segment(i), layer=f"layer.{i}") for i in range(3)))
    return MachineUse(
        num_csx=num_csx,
        machine=MachineSpec(),
        tiers=Tiers(Holding(4 << 30), Holding(4 << 30), Holding(8 << 30, 2 << 30)),
        sram_plan=SramPlan.of(step, alone(CS2)),
        layers=group_layers([STALLED], 1, 8),
        load=LinkLoad(3 << 30, 1 << 30, 0.123, 0.0456),
    )


@pytest.mark.parametrize(("num_csx", "drawn"), [(1, 1), (16, 16), (200, 16)])
def test_drawn_tree_has_every_system_of_a_small_cluster(num_csx: int, drawn: int) -> None:
    """A larger one says that some are left out."""
    picture = str(tree_drawing(Tree(num_csx, fan_out=4), use(num_csx).load))
    boxes = [line for line in picture.split("<") if line.startswith("rect")]
    lowest = max(re.findall(r'y="([0-9.]+)"', " ".join(boxes)), key=float)
    assert sum(f'y="{lowest}"' in box for box in boxes) == drawn
    assert ("of each larger level" in picture) is (num_csx > drawn)


@pytest.mark.parametrize("num_csx", [1, 5, 200])
def test_machine_sections_hold_the_numbers_of_any_number_of_systems(num_csx: int) -> None:
    """Layers that are alike are one row; the load of the links is in the drawing and the table."""
    parsed = Parsed.of(Page("a", "b", machine_sections(use(num_csx))))
    assert parsed.sections == ["stalls", "wafer", "tree", "memory"]
    assert {"layer.0-2", "3", "12.3%", "4.56%", "4.0 GiB", "2.0 GiB"} <= set(parsed.cells)
    assert "1 of 1 segment stall" in parsed.text
    assert "every link: down 12.3%, up 4.56% of its bandwidth" in parsed.text
    assert f"capacity {format_bytes(data_bytes(CS2))}" in parsed.text
    assert f"{num_csx} system" in parsed.text


def test_region_section_joins_equal_layers_and_states_counted_cycles() -> None:
    plain = LayerRegion("decoder.0", "forward", ("wafer",), 4, 6, 1200, 0, 0)
    simulated = replace(
        plain,
        layer="decoder.2",
        engines=("wafer-cycles",),
        kernel_cycles=1000,
        counted_cycles=1010,
    )
    of_torch = LayerRegion("loss", "forward", ("torch",), 4, 6, 77, 0, 0)
    regions = (plain, replace(plain, layer="decoder.1"), simulated, of_torch)
    cells = Parsed.of(Page("a", "b", [region_section(regions)])).cells
    assert {"decoder.0-1", "wafer", "4 x 6", "1,200", "1,000", "1,010", "77"} <= set(cells)
    assert "decoder.1" not in cells


def test_attribution_section_explains_overhead_that_dominates() -> None:
    for causes, is_there in ((Attribution(1, 9), True), (Attribution(9, 1), False)):
        parsed = Parsed.of(Page("a", "b", [attribution_section(causes, 1)]))
        assert (OVERHEAD_NOTE in parsed.text) == is_there
        assert {"10.0%", "90.0%"} <= set(parsed.cells)
