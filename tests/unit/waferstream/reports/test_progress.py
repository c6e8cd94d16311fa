"""Progress lines in the vendor's format, the bar, and event files."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from tests.support.disks import full_disk
from tests.support.event_files import events, scalars
from waferstream.reports.progress import EventWriter, ProgressBar, TerminalHandler


def test_progress_bar_is_absent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("Train", total=10, done=2)
    bar.advance()
    bar.write("a line")
    bar.close()
    captured = capsys.readouterr()
    assert captured.out == "a line\n"
    assert captured.err == ""


def test_log_lines_go_above_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar is taken away for the line, and is drawn again below it."""
    handler = TerminalHandler()
    with tqdm(total=3, file=sys.stdout, leave=False, mininterval=0) as bar:
        bar.update()
        capsys.readouterr()
        handler.emit(logging.makeLogRecord({"msg": "a log line"}))
        shown = capsys.readouterr().out
    assert "a log line\n" in shown
    before, after = shown.split("a log line\n")
    assert "1/3" in after
    assert not before.strip()


def test_event_writer_writes_scalars_on_close(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    writer.scalar("eval/loss", 3.5, 20)
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert scalars(path) == [("train/loss", 2.5, 10), ("eval/loss", 3.5, 20)]


def test_event_writer_flushes_during_a_run(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "made" / "here")
    writer.scalar("train/loss", 2.5, 10)
    writer.flush()
    (path,) = tmp_path.rglob("events.out.tfevents.*")
    assert [event.step for event in events(path)] == [0, 10]
    writer.close()


def test_event_writer_names_the_folder_of_a_full_disk(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    with full_disk(), pytest.raises(OSError, match=tmp_path.name):
        writer.flush()
    writer.close()
