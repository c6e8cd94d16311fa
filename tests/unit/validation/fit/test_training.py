"""Fits of training: they find the constants that made the rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from validation.families.training import run_of
from validation.fit.training import fit_wafers
from validation.rows.row import Row
from waferstream.core.program.program import ProgramKind
from waferstream.machine.hardware import CS2, CS3

Read = Callable[..., tuple[Row, ...]]

TINY = {
    "workload": "GPT-2 tiny", "hidden": "64", "layers": "2", "heads": "2", "vocab": "128",
    "system": "CS-2", "phase": "train", "unit": "samples/s", "seq_len": "32",
    "global_batch": "64", "num_csx": "1", "use": "calibration",
}  # fmt: skip


def test_fit_wafers_finds_the_constants_that_made_the_rows(read: Read) -> None:
    """Rows of both systems predicted with other constants are fitted to those constants."""
    changes = {
        "kernel_efficiency": 0.5,
        "attention_efficiency": 0.25,
        "segment_overhead_ps": 10**9,
    }
    made = {
        "CS-2": CS2.model_copy(update=changes),
        "CS-3": CS3.model_copy(update=changes | {"software_speed": 1.5}),
    }
    gptj = TINY | {"workload": "GPT-J tiny"}  # has the fastest loader
    shapes = [
        gptj | {"seq_len": "2048", "hidden": "512", "heads": "8"},
        gptj | {"seq_len": "128", "hidden": "1024", "heads": "16", "global_batch": "4096"},
        gptj | {"seq_len": "4096", "hidden": "256", "heads": "4", "global_batch": "128"},
        gptj | {"seq_len": "2048", "hidden": "512", "heads": "8", "system": "CS-3"},
        gptj | {"seq_len": "128", "hidden": "1024", "heads": "16", "system": "CS-3"},
    ]
    values = [
        run_of(row, ProgramKind.TRAIN, made[row.text("system")]).samples_per_s
        for row in read(*shapes)
    ]
    rows = read(*(shape | {"value": str(v)} for shape, v in zip(shapes, values, strict=True)))
    found = fit_wafers(rows)
    assert found == {
        "CS2.kernel_efficiency": pytest.approx(0.5, rel=0.03),
        "CS2.attention_efficiency": pytest.approx(0.25, rel=0.03),
        "CS2.segment_overhead_ps": pytest.approx(10**9, rel=0.03),
        "CS3.software_speed": pytest.approx(1.5, rel=0.03),
    }


def test_rows_before_the_last_change_are_not_fitted(read: Read) -> None:
    """Whatever their rate."""
    rows = [TINY | {"seq_len": str(length), "value": "1000"} for length in (32, 64, 128)]
    old = TINY | {"software": "R1.9.2", "value": "1"}
    assert fit_wafers(read(*rows, old)) == fit_wafers(read(*rows))
