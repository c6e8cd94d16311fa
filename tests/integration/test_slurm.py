"""The script for Slurm, submitted as its page says to a Slurm over three hosts in miniature."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hosts import network
from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.slurm import refusal
from tests.support.host import slurm
from tests.support.runs.tiny_run import DIGEST, ROOT, run_here, write_run

REFUSAL = network.refusal() or refusal()
pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL)),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all hosts see, with a checkout of the repository in it."""
    folder = tmp_path_factory.mktemp("slurm")
    checkout = folder / "waferstream"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("model_dir", "build"):
            (checkout / entry.name).symlink_to(entry)
    programs = Path(sys.executable).parent
    (checkout / ".venv" / "bin" / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    return folder


@pytest.fixture(scope="module")
def hosts(shared: Path) -> Iterator[MiniatureHosts]:
    with MiniatureHosts(3, shared=[shared], environment=slurm.variables(shared)) as started:
        slurm.start_slurm(started, shared)
        yield started


def submit(hosts: MiniatureHosts, shared: Path, name: str, *flags: str, **changes: Any) -> Path:
    """Submit a tiny run under a name; return its folder, in which job.out has what it prints."""
    folder = shared / name
    folder.mkdir()
    params, _, model_dir = write_run(folder, compiles=True, **changes)
    options = [f"--job-name={name}", f"--output={folder / 'job.out'}"]
    words = [*options, "deploy/slurm.sh", params, model_dir, *flags]
    hosts.run(0, ["sbatch", f"--chdir={shared / 'waferstream'}", *words])
    return folder


def wait_until(hosts: MiniatureHosts, words: str, printed: Path) -> None:
    """Wait until the job has printed some words, at most until it has ended."""
    while is_job_left(hosts):
        if printed.exists() and words in printed.read_text():
            return
        time.sleep(0.5)
    assert words in printed.read_text(), printed.read_text()


def is_job_left(hosts: MiniatureHosts) -> bool:
    """Whether a job waits, runs or ends."""
    return bool(hosts.run(0, ["squeue", "--noheader"]).stdout)


def processes_of_ray(hosts: MiniatureHosts) -> list[str]:
    """What is left of Ray on each host when no job is left."""
    while is_job_left(hosts):
        time.sleep(0.5)
    search = ["pgrep", "--list-full", "raylet|gcs"]
    return [hosts.attempt(host, search).stdout for host in range(hosts.count)]


def test_script_has_the_weights_of_one_host(
    hosts: MiniatureHosts, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_here(write_run(tmp_path), capsys)
    assert code == 0, err
    weights = next(line for line in out.splitlines() if line.startswith(DIGEST))
    folder = submit(hosts, shared, "short", "--num_csx=5")
    wait_until(hosts, weights, folder / "job.out")
    assert processes_of_ray(hosts) == [""] * hosts.count


def test_script_hands_on_the_signal_before_the_time_limit(
    hosts: MiniatureHosts, shared: Path
) -> None:
    steps = {"init__loop": {"max_steps": 100_000}, "init__checkpoint": {"steps": 100_000}}
    folder = submit(hosts, shared, "long", "--num_csx=3", "--mode=train", **steps)
    wait_until(hosts, "Step=2", folder / "job.out")
    hosts.run(0, ["scancel", "--batch", "--signal=TERM", "--name=long"])
    assert processes_of_ray(hosts) == [""] * hosts.count
    assert list((folder / "model_dir").glob("checkpoint_*.mdl")), (folder / "job.out").read_text()
