"""The picture of a wafer: whatever the sram_plan, a readable PNG appears."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.support.pictures import drawn, overlapping, words
from tests.support.small_programs import program, segment
from timing.hardware import CS2, CS3
from timing.sram import SramPlan, data_bytes
from waferstream.reports.wafer_picture import wafer_picture
from wsc.core.program import Footprint, OpWork, Stash
from wsc.core.units import format_bytes

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


@pytest.mark.parametrize("wafer", [CS2, CS3])
@pytest.mark.parametrize("samples", [1, 8, 64])
def test_any_placement_can_be_drawn(tmp_path: Path, wafer, samples):
    """Nearly empty, nearly full, and more than there is room for; colours of every kind."""
    path = tmp_path / "wafer.png"
    wafer_picture(path, SramPlan.of(replace(STEP, micro_batch_size=samples), wafer), "A wafer")
    image = imread(path)
    assert image.shape[:2] == (1040, 2600)
    assert image[..., :3].std() > 0.1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("samples", [1, 3, 9])
def test_no_two_words_of_a_wafer_lie_on_each_other(tmp_path: Path, samples: int) -> None:
    """Nor when next to nothing is in use, or next to nothing is free."""
    with drawn() as figures:
        wafer_picture(
            tmp_path / "wafer.png", SramPlan.of(replace(STEP, micro_batch_size=samples), CS2), "A"
        )
    assert overlapping(figures[0]) == []


def test_a_wafer_says_what_the_table_says(tmp_path: Path) -> None:
    """In the same unit, with as many digits."""
    sram_plan = SramPlan.of(replace(STEP, micro_batch_size=8), CS2)
    with drawn() as figures:
        wafer_picture(tmp_path / "wafer.png", sram_plan, "A wafer")
    written = words(figures[0])
    assert f"layer.0 backward: {format_bytes(sram_plan.peak_bytes)}" in written
    assert f"room {format_bytes(data_bytes(CS2))}" in written


def test_a_program_without_products_or_stash_can_be_drawn(tmp_path: Path):
    """There is nothing on the wafer then."""
    path = tmp_path / "wafer.png"
    wafer_picture(path, SramPlan.of(program(segments=(segment(0),)), CS2), "Nothing")
    assert path.stat().st_size > 10_000
