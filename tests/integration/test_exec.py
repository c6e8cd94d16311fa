"""``waferstream exec`` on programs written for the real machine's front end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cstorch import backends
from tests.support.programs.exec_program import write_program
from tests.support.reports.traces import read_trace
from tests.support.runs.tiny_run import ROOT
from waferstream.checkpoint.reader import Reader
from waferstream.cli.main import main

RunExec = Callable[..., tuple[int, str, str]]
"""Runs ``waferstream exec``; returns exit code, standard output and standard error."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_program(tmp_path)


def finish(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run ``waferstream exec`` in ``folder``, where it finds cluster.yaml.

    Returns exit code, standard output, standard error.
    """
    done = subprocess.run(
        [sys.executable, "-m", "waferstream", "exec", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def run_exec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunExec:
    """Return what ``finish`` does in ``folder``, but in this process."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        code = main(["exec", *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and standard output of a run to the end on two systems."""
    folder = write_program(tmp_path_factory.mktemp("trained"))
    flags = ["--num_csx=2", "--trace=trace.json"]
    code, out, err = finish(folder, *flags, "code/train_it.py", str(folder))
    assert code == 0, err
    return folder, out


def test_exec_trains_an_unchanged_program(trained: tuple[Path, str]) -> None:
    folder, out = trained
    assert "systems 2" in out
    losses = json.loads((folder / "losses.json").read_text())
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    checkpoint = Reader(folder / "checkpoint_6.mdl")
    assert "table.weight" in checkpoint.names("model")
    assert checkpoint.names("optimizer")
    assert (folder / "checkpoint_3.mdl").is_file()
    assert {"program", "crd-0", "csx-0"} <= read_trace(folder / "trace.json").tracks("measured")
    assert list((folder / "events").iterdir())


def test_exec_module_gives_the_same_losses(
    trained: tuple[Path, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A module is found in the current folder; flags of an earlier run change no bit."""
    monkeypatch.setattr(backends.csx.precision, "optimization_level", 0)
    monkeypatch.chdir(folder / "code")
    code = main(["exec", f"--cluster={folder / 'cluster.yaml'}", "-m", "train_it", str(folder)])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "systems 1" in out
    assert (folder / "losses.json").read_text() == (trained[0] / "losses.json").read_text()
    assert backends.csx.precision.optimization_level == 0


def test_exec_shows_the_program_s_own_error(folder: Path, run_exec: RunExec) -> None:
    code, out, err = run_exec("code/train_it.py", str(folder), "--fail_at=2")
    assert code == 1
    assert "step 2" in out
    assert "ValueError: broken by the program" in err
    assert "runpy" not in err


@pytest.mark.parametrize("text", [b"def", b"a\0b"])
def test_exec_shows_where_a_program_cannot_be_read(
    folder: Path, run_exec: RunExec, text: bytes
) -> None:
    """As Python does: no line of ours."""
    (folder / "code" / "broken.py").write_bytes(text)
    code, _, err = run_exec("code/broken.py")
    assert code == 1
    assert "SyntaxError: " in err
    assert "runpy" not in err
    assert "execute.py" not in err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import cerebras.pytorch as c\nc.optim.AdamV", "vendor-name-missing"),
        ("from cerebras.pytorch import spars", "vendor-name-missing"),
        ("import cerebras.pytorch as c\nc.backend('TPU')", "unknown-backend-type"),
    ],
)
def test_exec_points_at_the_line_that_met_an_error(
    folder: Path, run_exec: RunExec, line: str, error: str
) -> None:
    (folder / "code" / "short.py").write_text(line)
    code, _, err = run_exec("code/short.py")
    assert code == 1
    assert f"[{error}]" in err
    assert "short.py" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["missing.py"],
        ["-m", "no_such_module"],
        ["-m", "json.no_such_module"],
        ["-m", ".relative"],
        ["-m", "__main__"],
    ],
)
def test_exec_of_a_missing_program_has_a_code(run_exec: RunExec, words: list[str]) -> None:
    code, _, err = run_exec(*words)
    assert code == 1
    assert "[program-missing]" in err


def test_exec_shows_the_error_of_a_package(folder: Path, run_exec: RunExec) -> None:
    """A package that lacks another one exists itself."""
    (folder / "lacking").mkdir()
    (folder / "lacking" / "__init__.py").write_text("import no_such_dependency\n")
    code, _, err = run_exec("-m", "lacking.program")
    assert code == 1
    assert err.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_dependency'"
    assert "program-missing" not in err


@pytest.mark.parametrize("words", [[], ["--num_csx=0", "code/train_it.py"]])
def test_exec_without_a_program_is_a_wrong_command_line(
    run_exec: RunExec, words: list[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_exec(*words)
    assert stopped.value.code == 2
