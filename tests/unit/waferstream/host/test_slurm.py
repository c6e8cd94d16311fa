"""Surrogates at a stand-in for srun, which notes its options and how its command ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waferstream.host.slurm import start_surrogate

SRUN = """#!/bin/sh
while [ "$1" != sh ]; do echo "$1" >> {folder}/options; shift; done
"$@"
echo $? > {folder}/code
"""


@pytest.fixture
def allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What sbatch gives to a script."""
    program = tmp_path / "srun"
    program.write_text(SRUN.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    return tmp_path


@pytest.mark.parametrize("code", [0, 1, 143])
def test_surrogate_ends_as_its_job(allocation: Path, code: int) -> None:
    surrogate = start_surrogate("wsjob-a")
    assert surrogate is not None
    surrogate.end(code)
    assert "--job-name=wsjob-a" in (allocation / "options").read_text().splitlines()
    assert (allocation / "code").read_text() == f"{code}\n"


def test_surrogate_of_a_dead_run_fails(allocation: Path) -> None:
    surrogate = start_surrogate("wsjob-a")
    assert surrogate is not None
    assert surrogate._step.stdin is not None
    surrogate._step.stdin.close()  # as the kernel does
    surrogate._step.wait()
    assert (allocation / "code").read_text() == "1\n"


def test_run_under_srun_is_told_why_it_has_no_surrogate(
    allocation: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert start_surrogate("wsjob-a") is None
    assert "not in srun" in caplog.text


def test_run_without_slurm_has_no_surrogate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert start_surrogate("wsjob-a") is None
