"""Which hosts count as silent: those whose kernel does not answer, however busy the others are."""

from collections.abc import Collection
from typing import Any
from unittest.mock import Mock, patch

import pytest
import ray

from appliance.health.pulse import Activity, Pulse
from appliance.ray.hosts import pulses as module
from appliance.ray.hosts.pulses import Presence, RemoteHosts
from swarmx.links.endpoint import Address

WORKING = Pulse(Activity.WORK, 0.5, 0, 51, "a message")


@pytest.fixture
def done() -> Any:
    """The hosts whose tasks have ended; the future of a task is the name of its host."""
    finished: set[str] = set()

    def remote(**options: Any) -> Any:
        task = Mock()
        task.remote = lambda actors: next(iter(actors.values())).host
        return lambda function: task

    def wait(futures: list[str], **_: Any) -> tuple[list[str], list[str]]:
        return [f for f in futures if f in finished], [f for f in futures if f not in finished]

    def get(future: str) -> dict[str, Pulse]:
        return {f"csx-{future}": WORKING}

    with (
        patch.object(ray, "remote", remote),
        patch.object(ray, "wait", wait),
        patch.object(ray, "get", get),
        patch.object(module, "task_options", lambda host: {}),
    ):
        yield finished


def presences(*names: str) -> dict[str, Presence]:
    payload = Mock()
    return {f"csx-{host}": Presence(host, 1, Address("", ""), "log", payload) for host in names}


def test_host_that_answers_late_is_not_silent(done: set[str]) -> None:
    """Its kernel answers; what its task says counts as soon as it is there."""
    hosts = RemoteHosts(lambda asked, limit_s: set())
    for _ in range(20):
        assert hosts.look(presences("a")) == {}
    done.add("a")
    assert hosts.look(presences("a")) == {"csx-a": WORKING}


def test_host_without_task_and_kernel_is_silent(done: set[str]) -> None:
    asked: list[Collection[str]] = []

    def find(hosts: Collection[str], limit_s: float) -> Collection[str]:
        asked.append(set(hosts))
        return {"b"} & set(hosts)

    hosts, known = RemoteHosts(find), presences("a", "b")
    done.add("a")
    assert hosts.look(known) == {"csx-a": WORKING}
    assert hosts.look(known) == {"csx-a": WORKING, "csx-b": None}
    assert asked == [set(), {"b"}]  # who answers is not asked twice
