"""Log lines are written where they can be, and end no run where they cannot."""

import logging
from pathlib import Path

import pytest

from waferstream.host.log_file import LogFile


def logger_to(path: Path) -> logging.Logger:
    logger = logging.Logger("role")
    logger.addHandler(LogFile(path, "%(levelname)s %(message)s"))
    return logger


def test_lines_are_appended(tmp_path: Path) -> None:
    """Also a line with the name of a file that is no text."""
    path = tmp_path / "wgt-0.log"
    logger_to(path).info("first")
    logger_to(path).info("second \udcff")
    assert path.read_text() == "INFO first\nINFO second \\udcff\n"


def test_line_that_cannot_be_written_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the next one is written once there is a place for it."""
    path = tmp_path / "roles" / "wgt-0.log"
    logger = logger_to(path)
    for _ in range(3):
        logger.error("lost")
    assert capsys.readouterr().err.count("The run goes on") == 1
    path.parent.mkdir()
    logger.error("kept")
    assert path.read_text() == "ERROR kept\n"
