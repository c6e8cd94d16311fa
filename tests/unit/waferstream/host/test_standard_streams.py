"""Programs go on, or end, when nobody reads what they print."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest

from waferstream.host.standard_streams import LogFile, ended_by_reader, outlasting_readers


@contextmanager
def unread() -> Iterator[TextIO]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield stream


@contextmanager
def full() -> Iterator[TextIO]:
    """A file on a full disk."""
    with Path("/dev/full").open("w") as stream:
        yield stream


def print_and_go_on() -> None:
    """Print more than a buffer holds, and a line that only the end of a block writes."""
    print("x" * 100_000)
    print("y" * 100_000, file=sys.stderr)
    print("a line")


def test_program_goes_on_without_readers() -> None:
    """Of both streams, and also of what is written last."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(stack.enter_context(unread())))
        stack.enter_context(redirect_stderr(stack.enter_context(unread())))
        with outlasting_readers():
            print_and_go_on()
        with outlasting_readers():
            print("a line that the buffer holds")


def test_lost_reader_is_reported_on_the_other_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """Once: who looks at the terminal learns that the program still runs."""
    with unread() as stream, redirect_stdout(stream), outlasting_readers():
        print_and_go_on()
    assert capsys.readouterr().err.count("Warning: standard output: Broken pipe") == 1


def test_full_disk_is_reported_after_the_block() -> None:
    """The block runs to its end; then the error names the stream."""
    done = []

    def work() -> None:
        with full() as stream, redirect_stdout(stream), outlasting_readers():
            print_and_go_on()
            done.append(1)

    with pytest.raises(OSError, match="standard output") as caught:
        work()
    assert caught.value.errno == errno.ENOSPC
    assert done


@pytest.mark.parametrize("printed", [lambda: print("x" * 100_000), lambda: print("a line")])
def test_table_without_a_reader_ends_with_its_code(printed: Callable[[], None]) -> None:
    """Wherever the missing reader shows: in a print, or at the end; also inside of a run."""
    with unread() as stream, redirect_stdout(stream):
        with pytest.raises(SystemExit) as caught, ended_by_reader(141):
            printed()
        assert caught.value.code == 141
        with ended_by_reader(141), outlasting_readers():
            printed()


def test_table_on_a_full_disk_is_an_error() -> None:

    def work() -> None:
        with full() as stream, redirect_stdout(stream), ended_by_reader(141):
            print("x" * 100_000)

    with pytest.raises(OSError, match="standard output"):
        work()


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
