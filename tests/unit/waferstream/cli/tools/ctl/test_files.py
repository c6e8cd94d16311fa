"""``waferstream ctl``: what jobs print is followed and packed."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.support.host.tools import rows, tool
from tests.support.management.embedded import Runs
from waferstream.management.model import event
from waferstream.management.model.job import Phase


@pytest.fixture
def job(runs: Runs, tmp_path: Path) -> str:
    """Return an ended job with a log."""
    workflow = runs.submit()
    name = runs.job(workflow, folder=tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "job.log").write_text("one line\n")
    runs.note(workflow, event.Ended(result=Phase.SUCCEEDED))
    return name


def test_log_is_followed_to_its_end(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = tool(capfd, "ctl", "follow", job)
    assert text.startswith("one line\n")
    assert text.rstrip().endswith("SUCCEEDED")
    (row,) = rows(capfd, "ctl", "follow", job)
    assert row["result"] == "SUCCEEDED"


def test_logs_are_packed(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tool(capsys, "ctl", "log-export", job, "-o", tmp_path).strip()
    with tarfile.open(archive) as packed:
        assert {f"./{job}/job.log", "./workflow.json"} <= set(packed.getnames())


def test_only_a_management_keeps_files(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[data-file-not-found]" in tool(capsys, "ctl", "export", job, code=1)
