"""Three hosts in miniature, one Ray cluster over all: what only several hosts can show."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import refusal
from tests.support.runs.tiny_run import digest_of as weights_in
from tests.support.runs.tiny_run import run_here, write_run
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.checkpoint.reader import Reader
from waferstream.reports.run.summary import SUMMARY_NAME

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
]

DRIVER = str(Path(__file__).with_name("hosts_driver.py"))
# A host answers at once that nobody listens at a port.
ROUND_TRIP = """
import socket, sys, time
begin = time.perf_counter()
socket.socket().connect_ex((sys.argv[1], 9))
print(time.perf_counter() - begin)
"""
SIX_STEPS: dict[str, Any] = {"init__loop": {"max_steps": 6}, "init__checkpoint": {"steps": 6}}
DIGEST = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[MiniatureHosts]:
    with MiniatureHosts(3, cpus=[4, 4, 4]) as started:
        started.start_ray()
        yield started


@pytest.fixture(scope="module")
def expected() -> str:
    """The weights of three steps, by one process."""
    digest: str = train_on_cluster(init_config(), Shape(num_csx=2), 3)
    return digest


def attempt(
    hosts: MiniatureHosts,
    *,
    environment: dict[str, str] | None = None,
    link: str = "auto",
    placement: str = "SPREAD",
    address: str = "auto",
    server_placement: str = "PACK",
    **order: Any,
) -> subprocess.CompletedProcess[str]:
    """Train on the hosts with a driver on the first one."""
    runtime = {
        "address": address,
        "link": link,
        "placement": placement,
        "server_placement": server_placement,
    }
    return hosts.attempt(0, command_of(runtime, **order), environment=environment)


def command_of(runtime: dict[str, str], **order: Any) -> list[str]:
    """The command of a driver."""
    return [sys.executable, DRIVER, json.dumps({"runtime": runtime, **order})]


def digest_of(done: subprocess.CompletedProcess[str]) -> str:
    """The digest that a driver has printed; without one, all that it has printed."""
    lines = [line for line in done.stdout.splitlines() if DIGEST.fullmatch(line)]
    return lines[-1] if lines else done.stdout


def round_trip_s(hosts: MiniatureHosts, host: int, other: int) -> float:
    """The least of three, since the first one may include the search for the other's address."""
    command = [sys.executable, "-c", ROUND_TRIP, hosts.network.address(other)]
    return min(float(hosts.run(host, command).stdout) for _ in range(3))


@pytest.mark.parametrize(
    ("placement", "link"), [("SPREAD", "auto"), ("PACK", "auto"), ("SPREAD", "grpc")]
)
def test_weights_do_not_depend_on_hosts(
    hosts: MiniatureHosts, expected: str, placement: str, link: str
) -> None:
    assert digest_of(attempt(hosts, placement=placement, link=link, num_csx=6)) == expected


def test_address_with_port_finds_the_token_by_itself(hosts: MiniatureHosts, expected: str) -> None:
    done = attempt(hosts, address=hosts.ray_address, environment={"RAY_AUTH_MODE": ""})
    assert digest_of(done) == expected


def test_slow_link_is_reported_and_changes_no_weight(
    hosts: MiniatureHosts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 ms in each direction and 100 Mbit/s to and from the third host, in a run of six steps.

    The systems of that host wait for the first weights of a step at least those 20 ms.
    """
    code, out, err = run_here([*write_run(tmp_path, **SIX_STEPS), "--mode=train"], capsys)
    assert code == 0, err
    flags = write_run(hosts.folder(0), compiles=True, **SIX_STEPS)
    runtime = {"address": "auto", "placement": "SPREAD"}
    (hosts.folder(0) / "cluster.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    trace = hosts.folder(0) / "trace.json"
    command = [sys.executable, "run.py", *flags, "--mode=train", "--num_csx=6", f"--trace={trace}"]
    with hosts.network.slow_link(2, delay_ms=20, megabits=100):
        assert round_trip_s(hosts, 0, 2) >= 0.04
        hosts.run(0, command)
    summary = json.loads((hosts.folder(0) / "model_dir" / SUMMARY_NAME).read_text())
    assert summary["weights_sha256"] == weights_in(out)
    link = f"{hosts.network.address(0)} to {hosts.network.address(2)}"
    assert summary["link_waits"][link] >= 5 * 0.02
    slices = json.loads(trace.read_text())["traceEvents"]
    waits = [each for each in slices if link in each.get("args", {}).get("detail", "")]
    assert {each["args"]["attribution"] for each in waits} == {"link"}
    assert sum(each["dur"] for each in waits) >= 5 * 20_000


def test_every_cpu_can_be_used(hosts: MiniatureHosts, expected: str) -> None:
    """As many systems as one host has CPUs fit one host."""
    assert digest_of(attempt(hosts, placement="STRICT_PACK", num_csx=4)) == expected


def test_link_within_a_host_is_refused_for_several(hosts: MiniatureHosts) -> None:
    done = attempt(hosts, link="shared_memory")
    assert done.returncode != 0
    assert "[link-within-host]" in done.stdout


def test_checkpoint_of_spread_servers_is_whole_without_a_shared_disk(
    hosts: MiniatureHosts, expected: str, tmp_path: Path
) -> None:
    """The folder exists on every host, and only that of the program gets files."""
    for host in range(3):
        (hosts.folder(host) / "checkpoints").mkdir()
    path = "/tmp/checkpoints/model.mdl"
    done = attempt(hosts, save=path, servers=3, server_placement="SPREAD")
    assert digest_of(done) == expected
    train_on_cluster(init_config(), Shape(), 3, save=tmp_path / "model.mdl")
    found, known = (
        Reader(folder / "model.mdl") for folder in (hosts.folder(0) / "checkpoints", tmp_path)
    )
    assert found.tensors.keys() == known.tensors.keys()
    assert all(np.array_equal(found[key], known[key]) for key in known.tensors)
    for host in (1, 2):
        (hosts.folder(host) / "checkpoints" / "model.mdl").write_text("another file")
    resumed = attempt(hosts, restore=path, steps=2, servers=3, server_placement="SPREAD")
    restored = train_on_cluster(init_config(), Shape(), 2, restore=tmp_path / "model.mdl")
    assert digest_of(resumed) == restored
