"""A host of three in miniature is lost in the midst of a training: it falls silent, or dies."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import refusal
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
]

DRIVER = str(Path(__file__).with_name("hosts_driver.py"))
RUNTIME = {"address": "auto", "placement": "SPREAD"}
IN_THE_MIDST_S = 2.0  # after the first step has begun
LONG = 400  # steps
LONGER = 600


@pytest.fixture(scope="module")
def hosts() -> Iterator[MiniatureHosts]:
    """Each test takes the last host that is left."""
    with MiniatureHosts(3, cpus=[4, 4, 4]) as started:
        started.start_ray()
        yield started


def start(hosts: MiniatureHosts, **order: Any) -> subprocess.Popen[str]:
    """Start a training on the first host."""
    return hosts.start(0, [sys.executable, DRIVER, json.dumps({"runtime": RUNTIME, **order})])


def await_steps(driver: subprocess.Popen[str]) -> None:
    """Wait until a training is in the midst of its steps."""
    await_line(driver, "Beginning appliance run")
    time.sleep(IN_THE_MIDST_S)


def await_line(driver: subprocess.Popen[str], text: str) -> None:
    """Wait until a training says something."""
    assert driver.stdout is not None
    seen = []
    for line in driver.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail("".join(seen))


def test_silent_host_ends_the_run_and_the_command_resumes_at_once(
    hosts: MiniatureHosts, tmp_path: Path
) -> None:
    """On the hosts that are left, with the same bits; the error names role and host.

    How soon is measured by ``python -m benchmarks.hosts --figures silent resume``.
    """
    saved, path = tmp_path / "model.mdl", "/tmp/model.mdl"
    train_on_cluster(init_config(), Shape(), 3, save=saved)
    expected = train_on_cluster(init_config(), Shape(), 2, restore=saved)
    (hosts.folder(0) / "model.mdl").write_bytes(saved.read_bytes())
    with start(hosts, restore=path, steps=LONG) as driver:
        await_steps(driver)
        hosts.network.cut(2)
        output, _ = driver.communicate()
    assert "[host-lost]" in output
    assert f"was lost with its host {hosts.network.address(2)}" in output
    with start(hosts, restore=path, steps=2) as driver:
        output, _ = driver.communicate()
    assert output.splitlines()[-1] == expected


def test_run_with_restarts_goes_on_without_a_killed_host(hosts: MiniatureHosts) -> None:
    """It starts again from its own last state on the hosts that are left."""
    expected = train_on_cluster(init_config(), Shape(), LONG)
    with start(hosts, steps=LONG, restarts=2) as driver:
        await_steps(driver)
        hosts.kill(1)
        output, _ = driver.communicate()
    assert output.splitlines()[-1] == expected
    assert f"was lost with its host {hosts.network.address(1)}" in output


def test_run_goes_on_with_fewer_systems_until_a_host_joins() -> None:
    """One of three hosts dies and the others take four of six systems; another one joins later."""
    expected = train_on_cluster(init_config(), Shape(), LONGER)
    with MiniatureHosts(4, cpus=[2] * 4) as hosts:
        hosts.start_ray()
        hosts.run(3, ["ray", "stop", "--force"])
        order = {"num_csx": 6, "steps": LONGER, "restarts": 3}
        with start(hosts, **order, save="/tmp/model.mdl", save_every=20) as driver:
            await_steps(driver)
            hosts.kill(2)
            await_line(driver, "The hosts take 4 of 6 systems")
            await_line(driver, "Recovered in")
            hosts.join(3)
            output, _ = driver.communicate()
    assert "Hosts have joined" in output
    assert output.splitlines()[-1] == expected
