"""A study has a row for each point of its grid: numbers with ranges, or the reason for none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure, SubFigure

from tests.support.errors import raises
from tests.support.reports.pictures import drawn
from waferstream.cli.main import main
from waferstream.core.errors import ConfigError
from waferstream.reports.curve.result import CurvePoint
from waferstream.studies import running
from waferstream.studies.grid import Grid
from waferstream.studies.result import StudyResult
from waferstream.studies.running import run_study
from waferstream.studies.text import study_text, told

GRID = Grid.of(
    {
        "scaling": ["strong", "weak"],
        "machine.swarmx.fan_out": [4, 8],
        "batch_size": [16, 4],
        "num_csx": [1, 2, 8],
    }
)


@pytest.fixture(scope="module")
def result(params_file: Path) -> StudyResult:
    return run_study(params_file, GRID)


def test_every_point_is_a_row_in_the_order_of_the_grid(result: StudyResult) -> None:
    values = [tuple(row.values.values()) for row in result.rows]
    assert values == [tuple(point.values()) for point in GRID.points()]
    assert result.times.captured == 1


def test_study_leaves_no_file(result: StudyResult, params_file: Path) -> None:
    """What was captured is kept in the state folder."""
    assert [path.name for path in params_file.parent.iterdir()] == [params_file.name]


def test_text_says_money_and_what_efficiency_is_of(result: StudyResult) -> None:
    head = study_text(result).splitlines()[2]
    assert "efficiency from 1" in head
    assert "USD/Mtok" in head


def test_study_without_a_possible_point_fails(
    params_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ["study", f"{params_file}", "--over"]
    assert main([*study, "num_csx=32,64"]) == 1
    assert "[batch-below-systems]" in capsys.readouterr().out
    assert main([*study, "num_csx=16,32"]) == 0


def test_what_cannot_be_has_its_reason(result: StudyResult) -> None:
    """The others are there all the same, and no number stands for one that is not."""
    codes = {
        (row.values["machine.swarmx.fan_out"], row.scaling, row.values["batch_size"], row.num_csx):
        row.record["code"]
        for row in result.rows
    }  # fmt: skip
    refused = {key: code for key, code in codes.items() if code is not None}
    assert refused.pop((4, "strong", 4, 8)) == "batch-below-systems"
    assert {key[0] for key in refused} == {8}
    assert set(refused.values()) == {"fan-out-exceeds-ports"}
    assert all("samples_per_s" not in row.record for row in result.rows if row.record["reason"])


def test_weak_scaling_gives_every_system_the_batch(result: StudyResult) -> None:
    batches = {
        (row.scaling, row.num_csx): row.record["samples_per_step"]
        for row in result.rows
        if row.values["batch_size"] == 16 and isinstance(row.point, CurvePoint)
    }
    assert batches == {
        ("strong", 1): 16, ("strong", 2): 16, ("strong", 8): 16,
        ("weak", 1): 16, ("weak", 2): 32, ("weak", 8): 128,
    }  # fmt: skip


def test_ranges_and_ideal_are_in_the_data(result: StudyResult) -> None:
    for row in result.rows:
        if isinstance(row.point, CurvePoint):
            record = row.record
            low, rate, high = (record[f"samples_per_s{end}"] for end in ("_low", "", "_high"))
            assert isinstance(low, float)
            assert isinstance(rate, float)
            assert isinstance(high, float)
            assert low < rate < high
            assert row.ideal_samples_per_s == pytest.approx(rate / row.point.efficiency)


@pytest.mark.parametrize(
    ("key", "code"), [("hidden_size", "wrong-type"), ("hidden_sise", "unknown-key")]
)
def test_mistakes_in_a_model_are_told_before_any_is_captured(
    params_file: Path, key: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "capturing", None)
    with raises(ConfigError, code):
        run_study(params_file, Grid.of({f"model.{key}": [16, "many"], "num_csx": [1]}))


def test_a_mistake_ends_the_study(params_file: Path) -> None:
    with raises(ConfigError, "unknown-key"):
        run_study(params_file, Grid.of({"machine.swarmx.fanout": [2, 4]}))
    with raises(ConfigError, "wrong-type"):
        run_study(params_file, Grid.of({"machine.swarmx.fan_out": ["many"]}))


def test_files_hold_the_same_rows(result: StudyResult, tmp_path: Path) -> None:
    frame = result.to_dataframe()
    assert len(frame) == GRID.num_points
    for name in ("rows.csv", "rows.parquet", "rows.json"):
        result.write(tmp_path / name)
    pandas = pytest.importorskip("pandas")
    rates = frame["samples_per_s"]
    assert pandas.read_csv(tmp_path / "rows.csv")["samples_per_s"].tolist() == pytest.approx(
        rates.tolist(), nan_ok=True
    )
    assert pandas.read_parquet(tmp_path / "rows.parquet")["samples_per_s"].equals(rates)
    rows = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["rows"]
    assert [row["code"] for row in rows] == [row.record["code"] for row in result.rows]
    with raises(ConfigError, "unknown-format"):
        result.write(tmp_path / "rows.xlsx")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_picture_is_as_wide_as_a_column_and_equal_each_time(
    result: StudyResult, tmp_path: Path, suffix: str
) -> None:
    few = _rows_of(result, 16)
    with drawn(are_saved=True) as figures:
        for name in ("one", "two"):
            few.write(tmp_path / f"{name}{suffix}", "column")
    assert figures[0].get_size_inches()[0] == 3.5
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_picture_has_a_band_an_ideal_line_and_crosses(result: StudyResult, tmp_path: Path) -> None:
    with drawn() as figures:
        _rows_of(result, 4).write(tmp_path / "page.png", "page")
    (figure,) = figures
    assert isinstance(figure, Figure)
    above, below = figure.subfigs
    assert _legend(above) == ["strong", "weak"]
    assert "overhead" in _legend(below)
    rates = above.axes[0]
    assert len(rates.collections) == 4  # two bands each of strong and of weak scaling
    crosses = [line for line in rates.lines if line.get_marker() == "x"]
    assert [np.asarray(line.get_xdata()).tolist() for line in crosses] == [[8.0], []]


def test_text_has_rows_reasons_and_the_time_spent(result: StudyResult) -> None:
    assert told(GRID).startswith("Study: 2 scaling x 2 machine.swarmx.fan_out")
    text = study_text(result)
    assert "impossible" in text
    assert "[fan-out-exceeds-ports]" in text
    assert result.times.text(24) in text


def _legend(part: SubFigure) -> list[str]:
    return [text.get_text() for legend in part.legends for text in legend.get_texts()]


def _rows_of(result: StudyResult, batch_size: int) -> StudyResult:
    """Return the rows of one batch on the published machine."""
    rows = tuple(
        row
        for row in result.rows
        if row.values["batch_size"] == batch_size and row.values["machine.swarmx.fan_out"] == 4
    )
    return replace(result, rows=rows, varying=("scaling", "num_csx"))
