"""The script of the scaling curve: command line and exit codes, with a fake run.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import scaling_curve
from tests.support.reports.summaries import summary, with_digest

PARAMS = Path(__file__).parents[3] / "params.yaml"

RUN_PY = """
import json, pathlib, sys
flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
if flags["--num_csx"] == "3":
    sys.exit("three systems are too many")
model_dir = pathlib.Path(flags["--model_dir"])
model_dir.mkdir(parents=True)
answers = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
(model_dir / "run_summary.json").write_text(json.dumps(answers[flags["--num_csx"]]))
print("a line of the run")
"""

WAITING_RUN_PY = """
import pathlib, signal, sys
here = pathlib.Path(__file__)
def end(*_):
    here.with_name("ended").touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
here.with_name("started").touch()
print("started", flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a source tree whose runs on 1 and 2 systems agree; 4 systems get other weights."""
    runs = {1: summary(1), 2: summary(2), 4: with_digest(summary(4), "cd" * 32)}
    answers = {str(count): run.to_json() for count, run in runs.items()}
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    (tmp_path / "run.py").write_text(RUN_PY)
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    monkeypatch.setattr(scaling_curve, "HOME", tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def curve(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Return the exit code of a command line."""
    monkeypatch.setattr(sys, "argv", ["scaling_curve.py", "--out", "out", *words])
    return scaling_curve.main()


def test_scaling_curve_checks_the_batch_before_any_run(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise training on one system is lost when the run on many systems fails."""
    assert curve(monkeypatch, "--params", "params.yaml", "--num_csx", "1,16") == 1
    assert "[system-without-micro-batch]" in capsys.readouterr().err
    assert not (home / "out").exists()


def test_scaling_curve_prints_table_verdict_and_page(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert curve(monkeypatch, "--params", "params.yaml", "--num_csx", "2,1", "--steps", "10") == 0
    _, header, first, second, *_, verdict, page = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "systems"
    assert (first.split()[0], second.split()[0]) == ("1", "2")
    assert verdict.startswith("Bitwise reproducible: yes.")
    assert (home / page).read_text().startswith("<!doctype html>")


def test_scaling_curve_fails_if_weights_differ(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is written, too."""
    assert curve(monkeypatch, "--params", "params.yaml", "--num_csx", "1,4") == 1
    assert "Bitwise reproducible: NO." in capsys.readouterr().out
    assert (home / "out" / "scaling.html").exists()


def test_scaling_curve_prints_json_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What runs print goes to standard error."""
    words = ("--params", "params.yaml", "--num_csx", "1,2", "--json")
    assert curve(monkeypatch, *words) == 0
    assert json.loads(capfd.readouterr().out) == json.loads((home / "out/scaling.json").read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--params", "params.yaml", "--num_csx", "1,zwei"), "[sweep-invalid]"),
        (("--params", "no.yaml", "--num_csx", "1"), "Error: the file cannot be read"),
        (("--params", "params.yaml", "--num_csx", "3"), "[run-failed]"),
    ],
)
def test_scaling_curve_prints_one_error(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    """Exit code 1, no stack trace, no results."""
    assert curve(monkeypatch, *words) == 1
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (home / "out").exists()


def test_scaling_curve_prints_the_error_of_a_run_first(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    curve(monkeypatch, "--params", "params.yaml", "--num_csx", "3")
    own, _, last = capfd.readouterr().err.partition("\nError: ")
    assert "three systems are too many" in own
    assert "exit code 1" in last


@pytest.mark.parametrize(
    "signal_number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_scaling_curve_ends_the_run_when_interrupted(home: Path, signal_number: int) -> None:
    """The run has ended when the script ends."""
    (home / "run.py").write_text(WAITING_RUN_PY)
    script = Path(scaling_curve.__file__)
    start = (
        f"import sys; sys.path.insert(0, {str(script.parents[1])!r}); import pathlib; from scripts import scaling_curve; "
        f"scaling_curve.HOME = pathlib.Path({str(home)!r}); sys.exit(scaling_curve.main())"
    )
    command = [sys.executable, "-c", start, "--params=params.yaml", "--num_csx=1", "--out=out"]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.kill(process.pid, signal_number)
        assert process.wait(timeout=30) == -signal_number
    assert (home / "ended").exists()
