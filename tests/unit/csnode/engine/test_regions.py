"""Regions of the engines: what fits a wafer, and what is said of each layer."""

from __future__ import annotations

import pytest

from csnode.engine.regions import check_layers, check_region, layer_regions, regions_text
from csnode.engine.spec import EngineSpec
from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.machine.hardware.fabric import WSE2

ENGINE = EngineSpec(default="wafer", rows=1, columns=1)


def program(rows: int) -> Program:
    (batch,) = random_batches(1, rows)
    return compile_model(Regression(), batch, 1).program


def test_layer_must_fit_its_region() -> None:
    """4096 tokens of 4 inputs, 4 outputs and 2 sums take 160 KiB of one PE."""
    with raises(ApplianceResourceExhausted, "layer-beyond-region"):
        check_layers(ENGINE, program(4096), WSE2)
    check_layers(EngineSpec(default="wafer", rows=16, columns=4), program(4096), WSE2)
    check_layers(EngineSpec(default="torch", rows=1, columns=1), program(4096), WSE2)


@pytest.mark.parametrize(("rows", "columns"), [(WSE2.rows, 1), (1, WSE2.columns + 1)])
def test_region_must_lie_on_the_wafer(rows: int, columns: int) -> None:
    """A row of PEs is needed for the weights, too."""
    with raises(ApplianceResourceExhausted, "region-outside-wafer"):
        check_region(EngineSpec(default="wafer", rows=rows, columns=columns), WSE2)
    check_region(EngineSpec(default="torch", rows=rows, columns=columns), WSE2)


def test_report_names_engine_and_region_of_each_layer() -> None:
    engine = EngineSpec(default="wafer", rows=8, columns=4, layers={"layers.0": "torch"})
    regions = layer_regions(engine, program(8), "float32")
    assert {(each.rows, each.columns) for each in regions} == {(8, 4)}
    assert all(each.cycles > 0 for each in regions)
    assert any("wafer" in each.engines for each in regions)
    assert len(regions_text(regions).splitlines()) == len(regions) + 1


def test_kernels_of_the_simulator_are_counted_and_stated_by_closed_forms() -> None:
    engine = EngineSpec(default="wafer-cycles", rows=2, columns=2)
    regions = [
        each
        for each in layer_regions(engine, program(8), "float32", counts=True)
        if each.kernel_cycles
    ]
    assert {each.phase for each in regions} == {"forward", "backward"}
    for each in regions:
        assert each.counted_cycles == pytest.approx(each.kernel_cycles, rel=0.05)
        assert each.cycles >= each.kernel_cycles
    assert not any(each.counted_cycles for each in layer_regions(engine, program(8), "float32"))


def test_zeros_of_half_weights_shorten_streamed_products() -> None:
    """fp32 weights have no index that would leave them out."""
    engine = EngineSpec(default="wafer-cycles", rows=1, columns=1)
    tiny = program(64)
    sparse = dict.fromkeys(tiny.parameter, 0.1)
    for dtype, saves in (("float16", True), ("float32", False)):
        dense = layer_regions(engine, tiny, dtype)
        packed = layer_regions(engine, tiny, dtype, densities=sparse)
        pairs = zip(dense, packed, strict=True)
        assert any(p.kernel_cycles < d.kernel_cycles for d, p in pairs) is saves


def test_kernel_precedes_layer_and_layer_the_default() -> None:
    engine = EngineSpec(default="wafer", layers={"a": "wafer-cycles"}, kernels={"norm": "torch"})
    assert engine.of("a", "norm") == "torch"
    assert engine.of("a", "matmul") == "wafer-cycles"
    assert engine.of("b", "matmul") == "wafer"
    assert engine.of("b", "elementwise") == "torch"
