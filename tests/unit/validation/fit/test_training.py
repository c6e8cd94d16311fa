"""Fits of training: they find the constants that made the rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from validation.families.training import run_of
from validation.fit.training import fit_releases, fit_wafer
from validation.rows.row import Row
from waferstream.core.program.program import ProgramKind
from waferstream.machine.hardware import CS2

Read = Callable[..., tuple[Row, ...]]

TINY = {
    "workload": "GPT-2 tiny", "hidden": "64", "layers": "2", "heads": "2", "vocab": "128",
    "system": "CS-2", "phase": "train", "unit": "samples/s", "seq_len": "32",
    "global_batch": "64", "num_csx": "1", "use": "calibration",
}  # fmt: skip


def test_fit_wafer_finds_the_constants_that_made_the_rows(read: Read) -> None:
    """Rows predicted with other constants are fitted to those constants."""
    made = CS2.model_copy(
        update={
            "kernel_efficiency": 0.5,
            "attention_efficiency": 0.25,
            "segment_overhead_ps": 10**9,
        }
    )
    gptj = TINY | {"workload": "GPT-J tiny"}  # has the fastest loader
    shapes = [
        gptj | {"seq_len": "2048", "hidden": "512", "heads": "8"},
        gptj | {"seq_len": "2048", "hidden": "512", "heads": "8", "global_batch": "256"},
        gptj | {"seq_len": "128", "hidden": "1024", "heads": "16", "global_batch": "4096"},
        gptj | {"seq_len": "4096", "hidden": "256", "heads": "4", "global_batch": "128"},
    ]
    values = [run_of(one, ProgramKind.TRAIN, made).samples_per_s for one in read(*shapes)]
    rows = read(*(shape | {"value": str(v)} for shape, v in zip(shapes, values, strict=True)))
    found = fit_wafer(rows)
    assert found["CS2.kernel_efficiency"] == pytest.approx(0.5, rel=0.03)
    assert found["CS2.attention_efficiency"] == pytest.approx(0.25, rel=0.03)
    assert found["CS2.segment_overhead_ps"] == pytest.approx(10**9, rel=0.03)


def test_fit_releases_gives_published_over_predicted(read: Read) -> None:
    """A row at twice the predicted rate gives a speed of two."""
    (plain,) = read(TINY)
    rate = run_of(plain, ProgramKind.TRAIN).samples_per_s
    (stated,) = read(TINY | {"software": "R2.1.1", "value": str(2 * rate)})
    assert fit_releases([stated]) == {"ReleaseSpeeds.cs2_r2_1_1": pytest.approx(2, rel=0.01)}
