"""The progress bar follows the steps, and everything else is printed above it."""

from __future__ import annotations

import logging
import sys

import pytest
from tqdm import tqdm

from tests.support.host.terminals import terminal_of_test
from waferstream.host.bars import bar_of_steps
from waferstream.host.terminal import TerminalHandler, progress_bar, shows_bars, spinning


def test_progress_bar_is_absent_without_a_terminal() -> None:
    assert progress_bar("Train", 3, 10, lambda: 4) is None


def test_bars_are_absent_beside_those_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of_test(monkeypatch)
    logging.getLogger("waferstream").addHandler(TerminalHandler())
    assert shows_bars()
    with tqdm(total=3):
        assert not shows_bars()


def test_progress_bar_follows_steps_that_nobody_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest has begun; those before it are done. A run may go back."""
    terminal, seen = terminal_of_test(monkeypatch), [4]
    bar = bar_of_steps("Train", 5, 10, lambda: seen[-1])
    try:
        for newest, done in ((4, 0), (5, 0), (6, 1), (9, 4), (7, 2)):
            seen.append(newest)
            bar.refresh()
            assert bar.tasks[0].completed == done
    finally:
        bar.stop()
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


def test_what_a_program_prints_goes_above_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints and lines of the root logger, each whole; both are as before afterwards."""
    terminal = terminal_of_test(monkeypatch)
    monkeypatch.setattr(sys, "stdout", terminal)
    console = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.root, "handlers", [console])
    bar = bar_of_steps("Train", 1, 10, lambda: 0)
    try:
        print("loss", 2.5)
        print("long " * 30)
        logging.root.warning("a log line")
    finally:
        bar.stop()
    lines = [line.split("\r\x1b[2K")[-1] for line in terminal.getvalue().split("\n")]
    assert lines[:3] == ["loss 2.5", "long " * 30, "a log line"]
    assert sys.stdout is terminal
    assert logging.root.handlers == [console]
