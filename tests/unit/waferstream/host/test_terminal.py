"""The progress bar follows the steps, and everything else is printed above it."""

from __future__ import annotations

import logging
import sys

import pytest
from tqdm import tqdm

from tests.support.host.terminals import terminal_of_test
from waferstream.host.terminal import ProgressBar, TerminalHandler, spinning


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


def test_what_a_program_prints_goes_above_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints and lines of the root logger, each whole; both are as before afterwards."""
    terminal = terminal_of_test(monkeypatch)
    monkeypatch.setattr(sys, "stdout", terminal)
    console = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.root, "handlers", [console])
    bar = ProgressBar("Train", 1, 10, lambda: 0)
    try:
        print("loss", 2.5)
        logging.root.warning("a log line")
        bar.reach(3)
    finally:
        bar.close()
    lines = [line.split("\r")[-1] for line in terminal.getvalue().split("\n")]
    assert lines[:2] == ["loss 2.5", "a log line"]
    assert sys.stdout is terminal
    assert logging.root.handlers == [console]
