"""Roles that are forked through their runtime environment, as on a joined Ray."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from appliance.ray.connection.connection import enter, leave
from appliance.ray.forks.host_forks import HostForks
from appliance.spec import RuntimeSpec
from tests.support.host.processes import command_of, wait_for_end

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Ray's id of this host."""
    enter(RuntimeSpec(fast_start=False))  # which has what prepares runtime environments
    yield str(ray.get_runtime_context().get_node_id())
    leave()


class Parent:
    """An actor that says who has started it."""

    def pid(self) -> int:
        return os.getppid()


def test_actor_of_a_host_is_a_child_of_its_fork_server(host: str) -> None:
    """The server ends with the forks, and the actor stays."""
    forks = HostForks([host])
    options = forks.options(host)
    assert options["runtime_env"]["py_executable"]
    remote: Any = ray.remote(num_cpus=0, **options)(Parent)
    actor = remote.remote()
    server: int = ray.get(actor.pid.remote())
    assert b"appliance.ray.forks.fork_server" in command_of(server)
    forks.close()
    assert wait_for_end({server}) == set()
    assert ray.get(actor.pid.remote()) != server


def test_host_without_a_server_gets_no_options(host: str) -> None:
    assert HostForks([]).options(host) == {}
