"""Constants of wafers: the fits repeat the values in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.reference_rows import published_rows, row, write_rows
from timing.hardware import CS2
from validation.families.registry import FAMILIES
from validation.families.training import run_of
from validation.fit.calibration import Fit, calibrate
from validation.fit.wafer import (
    FITS,
    fit_checkpoint,
    fit_gemm,
    fit_gemv,
    fit_initial_weights,
    fit_releases,
    fit_wafer,
)
from validation.report.constants import constants
from validation.rows.reader import read_rows
from validation.rows.row import Row
from wsc.core.errors import ConfigError

Read = Callable[..., tuple[Row, ...]]

QUICK = [fit for fit in FITS if not fit.family.startswith("training")]
TINY = {
    "workload": "GPT-2 tiny", "hidden": "64", "layers": "2", "heads": "2", "vocab": "128",
    "system": "CS-2", "phase": "train", "unit": "samples/s", "seq_len": "32",
    "global_batch": "64", "num_csx": "1", "use": "calibration",
}  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read rows of a training file, each given by its columns."""

    def read(*columns: dict[str, str]) -> tuple[Row, ...]:
        rows = (row(f"T{i}", "training", **one) for i, one in enumerate(columns))
        return read_rows(write_rows(tmp_path / "rows.csv", *rows))

    return read


def test_all_fits_belong_to_different_families() -> None:
    """The command line selects a fit by its family."""
    assert len({fit.family for fit in FITS}) == len(FITS)


@pytest.mark.parametrize("fit", QUICK, ids=lambda fit: fit.family)
def test_fits_of_published_rows_give_the_constants_in_use(fit: Fit) -> None:
    """Anybody who repeats a fit on validation/data gets the numbers of the emulator."""
    rows = published_rows(fit.family, FAMILIES, use="calibration")
    for name, value in calibrate(fit, rows).items():
        in_use = [one.value for one in constants() if one.called(name)]
        assert in_use == [pytest.approx(value, rel=1e-3)]


def _kernel_rows(tmp_path: Path, *columns: dict[str, str]) -> Sequence[Row]:
    common = {"system": "WSE-2", "dtype": "fp32", "use": "calibration"}
    rows = (row(f"K{i}", **common, **one) for i, one in enumerate(columns))
    return read_rows(write_rows(tmp_path / "rows.csv", *rows))


def test_fit_gemv_needs_two_sizes(tmp_path: Path) -> None:
    """One size gives no line."""
    one = {"workload": "single-tile matvec y=Ax", "unit": "cycles per matvec", "M": "20", "K": "20"}
    with raises(ConfigError, "too-few-sizes"):
        fit_gemv(_kernel_rows(tmp_path, one, one))


def test_fit_gemm_needs_a_product() -> None:
    """Other rows of the family do not run the fitted program."""
    with raises(ConfigError, "no-calibration-row"):
        fit_gemm([])


def test_fit_checkpoint_averages_several_rows(read: Read) -> None:
    """Two checkpoints at 100 and 50 MB/s per byte of state give a bandwidth between."""
    saved = {"workload": "save checkpoint 1B", "phase": "setup", "unit": "s", "system": "CS-3"}
    (bandwidth,) = fit_checkpoint(read(saved | {"value": "120"}, saved | {"value": "240"})).values()
    assert 50e6 < bandwidth < 100e6


def test_fit_initial_weights_ignores_release_1(read: Read) -> None:
    """Rows of release 1 do not change the rate of later software."""
    sent = {"phase": "setup", "unit": "s"}
    old = {"workload": "send initial weights GPT-J 6B (R1.7)", "value": "129", "system": "CS-2"}
    new = {"workload": "send initial weights Llama2-7B", "value": "13.2", "system": "CS-3"}
    first, second = read(sent | old, sent | new)
    assert fit_initial_weights([first, second]) == fit_initial_weights([second])


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
    values = [run_of(one, "train", made).samples_per_s for one in read(*shapes)]
    rows = read(*(shape | {"value": str(v)} for shape, v in zip(shapes, values, strict=True)))
    found = fit_wafer(rows)
    assert found["CS2.kernel_efficiency"] == pytest.approx(0.5, rel=0.03)
    assert found["CS2.attention_efficiency"] == pytest.approx(0.25, rel=0.03)
    assert found["CS2.segment_overhead_ps"] == pytest.approx(10**9, rel=0.03)


def test_fit_releases_gives_published_over_predicted(read: Read) -> None:
    """A row at twice the predicted rate gives a speed of two."""
    (plain,) = read(TINY)
    rate = run_of(plain, "train").samples_per_s
    (stated,) = read(TINY | {"software": "R2.1.1", "value": str(2 * rate)})
    assert fit_releases([stated]) == {"ReleaseSpeeds.cs2_r2_1_1": pytest.approx(2, rel=0.01)}
