"""``waferstream runs``: runs are listed, shown, compared and removed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.host.tools import rows, tool
from tests.support.reports.summaries import summary
from waferstream.cli.main import command, main
from waferstream.reports.run.kept import find_runs

NAMES = ("20261128_101500_001", "20261128_113000_002")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two runs that have ended in two folders of models, and one that has not.

    It is the current folder.
    """
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(NAMES, start=1):
        folder = write(tmp_path / f"model_{number}" / name, rate=number / 1000)
        (folder / "run_summary.json").write_text(json.dumps(summary(4).to_json()))
        (folder.parent / "latest_run.log").symlink_to(Path(name) / "run.log")
        (folder.parent / "checkpoint_4.mdl").touch()
    write(tmp_path / "model_2" / "20261128_120000_003", rate=0.1)
    return tmp_path


def write(folder: Path, rate: float) -> Path:
    """Write what a run writes first."""
    folder.mkdir(parents=True)
    keys: dict[str, Any] = {"init": {"optimizer": {"SGD": {"lr": rate}}, "model_dir": str(folder)}}
    (folder / "trainer_params.yaml").write_text(yaml.safe_dump({"trainer": keys}))
    (folder / "run.log").touch()
    return folder


def test_runs_are_listed_oldest_first(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = rows(capsys, "runs", "list")
    assert [row["RUN"] for row in listed] == [*NAMES, "20261128_120000_003"]
    assert [row["STATUS"] for row in listed] == ["completed", "completed", "not ended"]
    assert [row["RUN"] for row in rows(capsys, "runs", "list", str(kept / "model_1"))] == [NAMES[0]]
    assert NAMES[1] in tool(capsys, "runs", "list")


@pytest.mark.usefixtures("kept")
def test_run_is_found_by_its_folder_or_name(capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("model_1", f"model_1/{NAMES[0]}", NAMES[0], NAMES[0][:12]):
        (row,) = rows(capsys, "runs", "show", given)
        assert Path(row["run"]).name == NAMES[0]
        assert row["keys"]["trainer.init.optimizer.SGD.lr"] == 0.001
    assert "report.html" in tool(capsys, "runs", "show", NAMES[0])
    assert "[unknown-run]" in tool(capsys, "runs", "show", "20250101", code=1)
    assert "[unknown-run]" in tool(capsys, "runs", "show", "20261128_1", code=1)  # of three


def test_runs_are_compared_in_a_table_and_a_picture(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = kept / "losses.png"
    found = rows(capsys, "runs", "compare", "model_1", NAMES[1], "--out", str(out))
    by_key = {row[""]: row for row in found}
    assert by_key["trainer.init.optimizer.SGD.lr"] == {
        "": "trainer.init.optimizer.SGD.lr",
        NAMES[0]: 0.001,
        NAMES[1]: 0.002,
    }
    assert not any("model_dir" in key for key in by_key)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "[too-few-runs]" in tool(capsys, "runs", "compare", "model_1", NAMES[0], code=1)


def test_run_is_removed_and_its_checkpoints_stay(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert NAMES[0] in tool(capsys, "runs", "rm", NAMES[0], "--yes")
    assert [run.name for run in find_runs([kept])] == [NAMES[1], "20261128_120000_003"]
    assert {path.name for path in (kept / "model_1").iterdir()} == {"checkpoint_4.mdl"}
    assert "[run-without-name]" in tool(capsys, "runs", "rm", "", "--yes", code=1)
    assert main(["runs", "rm", NAMES[1]]) == 1  # nobody says yes
    assert (kept / "model_2" / NAMES[1]).is_dir()


def test_places_that_are_no_folders_are_refused(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "[not-a-folder]" in tool(capsys, "runs", "list", str(kept / "none"), code=1)
    (kept / "empty").mkdir()
    assert rows(capsys, "runs", "list", str(kept / "empty")) == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_run_stays_without_a_yes(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nobody is there to answer."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert command(["runs", "rm", NAMES[0]], Path()) == 1
    assert NAMES[0] in [run.name for run in find_runs([Path()])]
