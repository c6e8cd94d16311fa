"""Hosts whose processors compute other bits, in miniature: kernels for older ones there."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import refusal
from tests.support.host.older_processors import needs_other_kernels, older_kernels

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
    needs_other_kernels,
]

DRIVER = str(Path(__file__).with_name("hosts_driver.py"))
DIGEST = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[MiniatureHosts]:
    variables = [{}, older_kernels()]
    with MiniatureHosts(2, cpus=[2, 2], variables=variables) as started:
        started.start_ray()
        yield started


def train(hosts: MiniatureHosts, *, mixed: bool) -> tuple[int, str]:
    """Train over both hosts; return the exit code and the output."""
    runtime = {"address": "auto", "placement": "SPREAD", "mixed_processors": mixed}
    order = json.dumps({"runtime": runtime, "num_csx": 2})
    done = hosts.attempt(0, [sys.executable, DRIVER, order])
    return done.returncode, done.stdout


def test_hosts_that_compute_other_bits_are_refused(hosts: MiniatureHosts) -> None:
    code, output = train(hosts, mixed=False)
    assert code != 0
    assert "a host computes other bits than the host of the program" in output
    assert "runtime.mixed_processors: true" in output


def test_they_share_a_run_on_request(hosts: MiniatureHosts) -> None:
    code, output = train(hosts, mixed=True)
    assert code == 0, output
    assert DIGEST.fullmatch(output.splitlines()[-1])
