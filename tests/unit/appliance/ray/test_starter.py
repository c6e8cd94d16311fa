"""Clusters that are started one after the other on hosts that leave and join; Ray is simulated."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import ray

from appliance.elaboration.elaborate import ClusterSize
from appliance.placement.placer import Host, Placer
from appliance.plan import ClusterPlan
from appliance.ray import starter as module
from appliance.ray.starter import RayStarter
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from tests.support.errors import raises
from waferstream.core.errors import ClusterJobInitError

HOME, NEAR, FAR = (Host(name, f"10.0.0.{i}", 2) for i, name in enumerate(("home", "near", "far")))


class Hosts:
    """The hosts of a Ray cluster that answer now."""

    def __init__(self) -> None:
        self.alive = [HOME, NEAR]
        self.sizes: list[int] = []
        """Systems of the clusters that were started."""

    def survey(self, _runtime: RuntimeSpec) -> Sequence[Host]:
        return tuple(self.alive)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": h.id, "Alive": True, "Resources": {"CPU": 2}} for h in self.alive]

    def roles(self, num_csx: int, *, placer: Placer) -> tuple[()]:
        placer.place(num_csx)
        self.sizes.append(num_csx)
        return ()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    found = Hosts()
    with ExitStack() as stack:
        for name, value in (
            ("survey", found.survey),
            ("with_free_cpus", lambda hosts, _: tuple(hosts)),
            ("await_free_cpus", lambda *_: None),
            ("enter", lambda _: False),
            ("lost_process", lambda: None),
            ("RayCluster", lambda *_, **__: None),
        ):
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch.object(ClusterPlan, "roles", found.roles))
        stack.enter_context(patch.object(ray, "nodes", found.nodes))
        stack.enter_context(patch.object(ray, "is_initialized", lambda: True))
        yield found


def starter_on(
    hosts: Hosts, min_num_csx: int | None, num_csx: int = 4, **runtime: Any
) -> RayStarter:
    spec = ClusterSpec(runtime=RuntimeSpec(address="auto", **runtime))
    restarts = (
        None if min_num_csx is None else AutoRestart(max_num_restarts=1, min_num_csx=min_num_csx)
    )
    return RayStarter(ClusterPlan((), ClusterSize(num_csx), spec, 0, autorestart=restarts))


def test_next_cluster_has_the_systems_that_the_hosts_take(hosts: Hosts) -> None:
    """Fewer while a host is away, all again once one has joined."""
    starter = starter_on(hosts, 1)
    starter.start()
    hosts.alive = [HOME]
    starter.start()
    assert not starter.has_better_hosts()
    hosts.alive = [HOME, FAR]
    assert starter.has_better_hosts()
    starter.start()
    assert not starter.has_better_hosts()
    assert hosts.sizes == [4, 2, 4]


@pytest.mark.parametrize("min_num_csx", [None, 3])
def test_fewer_systems_than_allowed_are_refused(hosts: Hosts, min_num_csx: int | None) -> None:
    starter = starter_on(hosts, min_num_csx)
    starter.start()
    hosts.alive = [HOME]
    with raises(ClusterJobInitError, "too-few-cpus"):
        starter.start()


def test_first_cluster_has_all_systems_or_does_not_start(hosts: Hosts) -> None:
    with raises(ClusterJobInitError, "too-few-cpus"):
        starter_on(hosts, 1, num_csx=5).start()


@pytest.mark.parametrize(("placement", "is_better"), [("PACK", False), ("SPREAD", True)])
def test_joined_host_is_better_if_it_takes_systems(
    hosts: Hosts, placement: str, is_better: bool
) -> None:
    starter = starter_on(hosts, 1, placement=placement)
    starter.start()
    hosts.alive = [HOME, NEAR, FAR]
    assert starter.has_better_hosts() is is_better
