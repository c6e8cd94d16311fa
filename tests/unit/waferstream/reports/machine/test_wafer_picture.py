"""The picture of a wafer is readable for any SRAM plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.support.programs.small_programs import program, segment
from tests.support.reports.pictures import drawn, overlapping, words
from tests.support.timing.machines import alone
from waferstream.core.program.segment import Footprint, OpWork, Stash
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, CS3, WaferSpec
from waferstream.machine.sram import SramPlan, data_bytes, sram_course
from waferstream.reports.machine.wafer_picture import wafer_picture

PRODUCT = OpWork("mm", "matmul", 2 * 64 * 32 * 16, (1, 64, 32, 16), streams=True)
STEP = program(
    segments=(
        segment(
            0,
            layer="layer.0",
            work=(PRODUCT,),
            outputs=("h",),
            stash=(Stash(("h",), Footprint(0, 10**9)),),
            working=Footprint(0, 2 * 10**9),
        ),
        segment(1, "backward", "layer.0", inputs=("h",), working=Footprint(10**9, 10**9)),
    )
)


@pytest.mark.parametrize(("wafer", "samples"), [(CS2, 1), (CS3, 8), (CS2, 64)])
def test_wafer_picture_draws_any_sram_plan(tmp_path: Path, wafer: WaferSpec, samples: int) -> None:
    """Nearly empty, nearly full, and beyond the capacity."""
    path = tmp_path / "wafer.png"
    wafer_picture(
        path,
        sram_course(SramPlan.of(replace(STEP, micro_batch_size=samples), alone(wafer))),
        "A wafer",
    )
    image = imread(path)
    assert image.shape[:2] == (1040, 2600)
    assert image[..., :3].std() > 0.1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("samples", [1, 3, 9])
def test_wafer_picture_has_no_overlaps(tmp_path: Path, samples: int) -> None:
    """Also if nearly nothing is used, or nearly nothing is free."""
    with drawn() as figures:
        wafer_picture(
            tmp_path / "wafer.png",
            sram_course(SramPlan.of(replace(STEP, micro_batch_size=samples), alone(CS2))),
            "A",
        )
    assert overlapping(figures[0]) == []


def test_wafer_picture_has_the_numbers_of_the_plan(tmp_path: Path) -> None:
    sram_plan = SramPlan.of(replace(STEP, micro_batch_size=8), alone(CS2))
    with drawn() as figures:
        wafer_picture(tmp_path / "wafer.png", sram_course(sram_plan), "A wafer")
    written = words(figures[0])
    assert f"layer.0 backward: {format_bytes(sram_plan.peak_bytes)}" in written
    assert f"capacity {format_bytes(data_bytes(CS2))}" in written


def test_wafer_picture_draws_an_empty_wafer(tmp_path: Path) -> None:
    """A program without products or stash."""
    path = tmp_path / "wafer.png"
    empty = SramPlan.of(program(segments=(segment(0),)), alone(CS2))
    wafer_picture(path, sram_course(empty), "Nothing")
    assert path.stat().st_size > 10_000
