"""An SRAM plan in numbers: bytes, PEs and utilisation of each layer, counted by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tests.support.programs.small_programs import program, segment
from tests.support.timing.machines import alone
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, OpWork, Stash
from waferstream.machine.hardware import CS2, WSE2, override
from waferstream.machine.kernels import Grid
from waferstream.machine.sram import (
    SramPlan,
    code_bytes,
    data_bytes,
    recompute,
    report_text,
    sram_report,
    stash_by_layer,
)

MB = 1_000_000
WAFER = override(CS2, fabric=override(WSE2, columns=10, rows=20))


def product(tokens: int, inner: int, outputs: int = 7) -> OpWork:
    shape = (1, tokens, inner, outputs)
    return OpWork("mm", "matmul", 2 * tokens * inner * outputs, shape, streams=True)


def step(*work: OpWork) -> Program:
    """Two layers; the first one's forward pass does ``work``."""
    return program(
        segments=(
            segment(
                0,
                layer="first",
                weights=("first.weight", "first.bias"),
                outputs=("h", "inner"),
                work=work,
                stash=(
                    Stash(("h",), Footprint(0, 3 * MB)),
                    Stash(("inner",), Footprint(MB, 4 * MB)),
                ),
                working=Footprint(MB, 7 * MB),
            ),
            segment(1, layer="last", inputs=("h",), outputs=("g",), drops=("h",),
                    stash=(Stash(("g",), Footprint(0, MB)),), working=Footprint(0, MB)),
            segment(2, "backward", "first", inputs=("inner", "g"), drops=("inner", "g"),
                    working=Footprint(0, 2 * MB)),
        )
    )  # fmt: skip


def test_report_adds_up_the_bytes_of_a_layer() -> None:
    """Weights in stream dtype; what the forward pass leaves; the larger working set of the two."""
    first, last = sram_report(SramPlan.of(step(), alone(WAFER))).layers
    assert (first.layer, first.weight_bytes) == ("first", (16 + 4) * 4)
    assert first.stash_bytes == 15 * MB  # two samples
    assert first.working_bytes == 15 * MB
    assert (last.stash_bytes, last.working_bytes) == (2 * MB, 2 * MB)
    assert not first.is_recomputed


def test_report_has_peak_and_capacity_of_the_plan() -> None:
    """The numbers add up to the SRAM of the wafer."""
    sram_plan = SramPlan.of(step(), alone(WAFER))
    report = sram_report(sram_plan)
    assert report.peak_stash_bytes + report.peak_working_bytes == 17 * MB
    assert report.peak_buffer_bytes == sram_plan.buffers[1] == 0
    assert report.peak_bytes == 17 * MB
    assert report.peak_at == "last forward"
    assert report.code_bytes + report.capacity_bytes == report.sram_bytes
    assert (code_bytes(WAFER), data_bytes(WAFER)) == (report.code_bytes, report.capacity_bytes)


@pytest.mark.parametrize(
    ("tokens", "features", "columns", "rows", "utilisation"),
    [
        (20, 10, 10, 20, 1.0),
        (40, 30, 10, 20, 1.0),
        (21, 10, 10, 11, 21 / 40),  # two tokens a row, so eleven rows
        (20, 11, 6, 20, 11 / 20),  # two features a column
        (5, 10, 10, 5, 0.25),
    ],
)
def test_report_counts_idle_pes_of_uneven_tiles(
    tokens: int, features: int, columns: int, rows: int, utilisation: float
) -> None:
    """A grid of 10 x 20: features along the columns, tokens down the rows."""
    first, last = sram_report(SramPlan.of(step(product(tokens, features)), alone(WAFER))).layers
    assert (first.columns, first.rows) == (columns, rows)
    assert first.utilisation == pytest.approx(utilisation)
    assert (last.columns, last.rows, last.utilisation) == (0, 0, 0.0)


def test_report_counts_tokens_of_all_products_of_a_batch() -> None:
    """Four times five of them fill the rows that twenty fill."""
    work = OpWork("bmm", "matmul", 2 * 20 * 10 * 7, (4, 5, 10, 7), streams=True)
    first, _ = sram_report(SramPlan.of(step(work), alone(WAFER))).layers
    assert (first.columns, first.rows, first.utilisation) == (10, 20, 1.0)


def test_report_utilisation_is_weighted_by_time() -> None:
    """One product at full load and one of the same size at half take 1 + 2 units for 2."""
    full, half = product(40, 10, 7), product(10, 10, 28)
    report = sram_report(SramPlan.of(step(full, half), alone(WAFER)))
    assert report.layers[0].utilisation == pytest.approx(2 / 3)


def test_report_utilisation_is_of_streamed_products_alone() -> None:
    """Not those of two activations, nor what is no product, nor a product of nothing."""
    resident = product(20, 10)._replace(streams=False)
    lookup = OpWork("embedding", "gather", 10, (1, 20, 10, 7), streams=True)
    first, _ = sram_report(SramPlan.of(step(resident, lookup, product(0, 10)), alone(WAFER))).layers
    assert (first.columns, first.rows, first.utilisation) == (0, 0, 0.0)


def test_report_with_several_replicas_per_row() -> None:
    """A hidden dimension that fills half a row is stored there twice, for other tokens."""
    grid = Grid(WAFER.fabric, 5)
    report = sram_report(SramPlan.of(step(product(40, 5)), alone(WAFER)), grid)
    assert (report.layers[0].columns, report.layers[0].utilisation) == (10, 1.0)


def test_report_is_plain_data() -> None:
    """So that it can be written as JSON and read by other programs."""
    report = asdict(sram_report(SramPlan.of(step(product(20, 10)), alone(WAFER))))
    assert json.loads(json.dumps(report))["layers"][0]["layer"] == "first"


def test_report_text_names_what_fills_the_wafer() -> None:
    """Sizes for people; recomputed layers are marked."""
    plain = step(product(20, 10))
    text = report_text(sram_report(SramPlan.of(recompute(plain, [0]), alone(CS2), (0,))))
    assert "CS-2, train: micro-batch of 2" in text
    assert "code and runtime" in text
    assert "free" in text
    row = next(line for line in text.splitlines() if line.startswith("first"))
    assert "yes" in row


def test_report_text_of_a_plan_that_does_not_fit() -> None:
    """A plan that does not fit can be shown, too."""
    large = replace(step(), micro_batch_size=10**5)
    assert "missing" in report_text(sram_report(SramPlan.of(large, alone(CS2))))


def test_report_text_has_one_line_for_equal_layers() -> None:
    """A model of a hundred layers is not a hundred lines."""
    segments = tuple(segment(i, layer=f"decoder.{i}") for i in range(100))
    text = report_text(sram_report(SramPlan.of(program(segments=segments), alone(CS2))))
    assert "decoder.0 to decoder.99" in text
    assert "decoder.1 " not in text


def test_stash_by_layer_is_in_the_order_of_layers() -> None:
    """In the order in which the layers made it."""
    sram_plan = SramPlan.of(step(), alone(WAFER))
    found = stash_by_layer(sram_plan.program, sram_plan.moments[2])
    assert found == {"first": Footprint(MB, 4 * MB), "last": Footprint(0, MB)}
    assert sum(found.values(), Footprint()) == sram_plan.moments[2].stash
