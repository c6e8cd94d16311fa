"""A host in miniature that lacks what the others have: refused with its name, before a start."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pytest

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import REPOSITORY, refusal

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(300),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
]

DRIVER = str(Path(__file__).with_name("hosts_driver.py"))


@pytest.fixture(scope="module")
def hosts() -> Iterator[MiniatureHosts]:
    with MiniatureHosts(2, cpus=[2, 2]) as started:
        started.start_ray()
        yield started


def train(hosts: MiniatureHosts, num_csx: int = 2, placement: str = "SPREAD") -> str:
    """Return what a driver on the first host prints until it fails."""
    order = {"runtime": {"address": "auto", "placement": placement}, "num_csx": num_csx}
    done = hosts.attempt(0, [sys.executable, DRIVER, json.dumps(order)])
    assert done.returncode == 1
    return done.stdout


@contextmanager
def mounted(hosts: MiniatureHosts, target: Path, *words: str) -> Iterator[None]:
    """Let the second host see something else at a place."""
    hosts.run(1, ["mount", *words, str(target)])
    try:
        yield
    finally:
        hosts.run(1, ["umount", str(target)])


@pytest.mark.parametrize("what", ["WaferStream's code", "torch"])
def test_host_with_another_version_is_refused(hosts: MiniatureHosts, what: str) -> None:
    places = {
        "WaferStream's code": REPOSITORY / "waferstream" / "core" / "units.py",
        "torch": next(
            Path(str(file.locate()))
            for file in distribution("torch").files or ()
            if file.name == "METADATA"
        ),
    }
    other = hosts.folder(1) / "other"
    other.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.1\n")
    with mounted(hosts, places[what], "--bind", str(other)):
        output = train(hosts)
    assert "[host-differs]" in output
    assert f"{what} of a host" in output
    assert "where: host-1" in output


def test_host_without_shared_memory_is_refused(hosts: MiniatureHosts) -> None:
    with mounted(hosts, Path("/dev/shm"), "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        output = train(hosts)
    assert "[host-without-shared-memory]" in output
    assert "where: host-1" in output


def test_too_few_hosts_are_refused(hosts: MiniatureHosts) -> None:
    """By the number of hosts, and by that of their CPUs."""
    assert "[too-few-hosts]" in train(hosts, 3, "STRICT_SPREAD")
    assert "[too-few-cpus]" in train(hosts, 5)
