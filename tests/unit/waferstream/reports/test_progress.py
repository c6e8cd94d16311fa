"""Progress lines in the vendor's format, the bar, and event files."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from tests.support.disks import full_disk
from tests.support.event_files import events, scalars
from waferstream.reports.progress import EventWriter, ProgressBar
from wsc.core.terminal import TerminalHandler, spinning


class Terminal(io.StringIO):
    """A stand-in for a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_of_test(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal; pytest takes it back from a fixture."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def test_progress_bar_is_absent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("Train", 3, 10, lambda: 4)
    bar.follow()
    bar.reach(5)
    bar.write("a line")
    bar.close()
    captured = capsys.readouterr()
    assert captured.out == "a line\n"
    assert captured.err == ""


def test_progress_bar_follows_steps_that_nobody_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, seen = terminal_of_test(monkeypatch), [4]
    bar = ProgressBar("Train", 5, 10, lambda: seen[-1])
    try:
        for newest, done in ((4, 0), (5, 0), (6, 1), (9, 4), (7, 4)):
            seen.append(newest)
            bar.follow()
            assert bar.done == done
        bar.reach(10)
        assert bar.done == 6
        bar.reach(6)  # the run has gone back
        assert bar.done == 2
    finally:
        bar.close()
    assert "Train" in terminal.getvalue()


def test_spinner_is_shown_above_log_lines_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = terminal_of_test(monkeypatch)
    log = logging.getLogger("waferstream")
    with spinning("Starting"):
        pass
    assert not terminal.getvalue()
    log.addHandler(TerminalHandler())
    with spinning("Starting"):
        log.warning("a log line")
    assert "Starting" in terminal.getvalue()
    assert capsys.readouterr().out.strip() == "a log line"


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
