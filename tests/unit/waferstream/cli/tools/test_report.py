"""``waferstream report``: what the newest run of a folder found, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.host.tools import rows, tool
from tests.support.reports.summaries import summary

NAME = "20261128_101500_001"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run that has ended."""
    folder = tmp_path / "model_dir" / NAME
    folder.mkdir(parents=True)
    (folder / "trainer_params.yaml").write_text("trainer: {}\n")
    (folder / "run_summary.json").write_text(json.dumps(summary(4).to_json()))
    (folder / "report.html").write_text("of the run")
    return folder


def test_report_says_figures_and_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "report", run.parent)
    assert (row["page"], row["status"]) == (str(run / "report.html"), "completed")
    text = tool(capsys, "report", run)
    assert str(run / "report.html") in text
    assert row["systems"] in text


def test_page_is_copied(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert str(page) in tool(capsys, "report", run, "--out", page)
    assert page.read_text() == "of the run"
    assert "folder-missing" in tool(capsys, "report", run, "--out", page / "x", code=1)


def test_simulation_alone_has_a_page_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "simulation" / "simulation.html"
    page.parent.mkdir()
    page.write_text("of the simulation")
    assert rows(capsys, "report", tmp_path) == [{"page": str(page)}]


def test_run_that_has_not_ended_has_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "report.html").unlink()
    assert "[report-missing]" in tool(capsys, "report", run, code=1)
