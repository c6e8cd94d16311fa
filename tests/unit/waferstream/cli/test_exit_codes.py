"""What ends a command without a reader, and what a run does then."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest

from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.cli import UNREAD
from waferstream.cli.main import main


@contextmanager
def closed_pipe() -> Iterator[TextIO]:
    """Standard output whose reader has gone, as that of ``head`` does."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream):
        yield stream


@pytest.mark.parametrize(
    "words", ["model list", "model list --json", "--help", "config schema params"]
)
def test_command_that_only_prints_ends_without_a_reader(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word, as after SIGPIPE."""
    with closed_pipe(), pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == UNREAD == 128 + signal.SIGPIPE
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", ["model list", "--help", "--version", "model list --help"])
def test_command_on_a_full_disk_is_an_error(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w", buffering=1) as full, redirect_stdout(full):
        assert main(words.split()) == 1
    assert "Error: standard output: " in capsys.readouterr().err


def test_training_goes_on_without_a_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the same weights; the log of the run has every line, and the warning."""
    flags = [*write_run(tmp_path), "--mode=train"]
    _, whole, _ = run_here([*flags, f"--model_dir={tmp_path / 'whole'}"], capsys)
    with closed_pipe():
        code, _, err = run_here(flags, capsys)
    assert code == 0
    assert err.count("Warning: standard output: Broken pipe") == 1
    log = (tmp_path / "model_dir" / "latest_run.log").read_text()
    assert "Broken pipe" in log
    assert log.endswith(f"Weights SHA-256: {digest_of(whole)}\n")


def test_training_on_a_full_disk_ends_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its checkpoints are written where there is space."""
    flags = [*write_run(tmp_path), "--mode=train"]
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "Error: standard output: " in err
    assert (tmp_path / "model_dir" / "checkpoint_8.mdl").exists()
