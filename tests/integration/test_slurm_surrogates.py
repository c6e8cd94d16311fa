"""Each cluster job of a run in an allocation is a step that Slurm knows by the job's name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.hosts.slurm import refusal, slurm
from tests.support.runs.tiny_run import ROOT, write_run

REFUSAL = refusal()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(300),
    pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL)),
]


@pytest.fixture(scope="module")
def variables() -> Iterator[Mapping[str, str]]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm(Path(folder), 3) as users:
        yield users


def test_cluster_jobs_are_steps(variables: Mapping[str, str], tmp_path: Path) -> None:
    run = [sys.executable, str(ROOT / "run.py"), *write_run(tmp_path, compiles=True)]
    printed = tmp_path / "job.out"
    words = ["sbatch", "--parsable", "--nodes=3", f"--output={printed}", "--wrap", shlex.join(run)]
    sent = subprocess.run(words, env=variables, check=True, capture_output=True, text=True)
    steps: set[str] = set()
    while names := listed(variables, sent.stdout.strip()):
        steps |= set(names)
        time.sleep(0.1)
    text = printed.read_text()
    jobs = set(re.findall("Job id: (wsjob-[a-z0-9]+)", text))
    assert len(jobs) >= 2, text
    assert jobs <= steps


def listed(variables: Mapping[str, str], job: str) -> list[str]:
    """Return the names of the steps of a job; of the job, while it waits."""
    names: list[str] = []
    for flags in ("--steps", f"--jobs={job}"), (f"--jobs={job}",):
        words = ["squeue", "--noheader", "--format=%j", *flags]
        done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
        names += done.stdout.split()
    return names
