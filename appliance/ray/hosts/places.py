"""Reservation of CPUs for the systems of a cluster, and where Ray starts each of its actors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from appliance.placement.placer import Host, Placement, Placer
from appliance.ray.forks.host_forks import LEAST_ROLES, HostForks
from appliance.spec import RuntimeSpec
from waferstream.core.errors import ClusterJobInitError
from waferstream.core.roles.names import node_name

_LOOK_S = 1.0
_NODE_PREFIX = node_name(0).rstrip("0")


class Places:
    """The places of all roles of a cluster.

    On a joined cluster each CS system reserves a CPU of its host: all get theirs, or none starts. A
    private Ray has no other work, and the pool of cores limits how many roles compute at a time.

    Args:
        roles: Names of the roles.
        placer: What places them.
        runtime: Where the cluster runs, and its time limit.
        on_wait: Called while this waits for CPUs, and may raise.
        session: Name of the reservation, for ``release``.

    Raises:
        ClusterJobInitError: The hosts are too few or too small, their CPUs are not free within
            ``start_timeout_s``, or the link cannot span hosts.
    """

    def __init__(
        self,
        roles: Iterable[str],
        placer: Placer,
        runtime: RuntimeSpec,
        on_wait: Callable[[], None] = lambda: None,
        session: str = "",
    ) -> None:
        names = list(roles)
        num_systems = sum(role.startswith(_NODE_PREFIX) for role in names)
        self._placement = placer.place(num_systems)
        self._runtime = runtime
        self._session = session
        self._group: PlacementGroup | None = None
        self._bundles: dict[str, int] = {}
        self._forks: HostForks | None = None
        check_link(self._placement, runtime)
        if runtime.address != "local" and num_systems:
            self._reserve(on_wait)
        if runtime.address != "local":
            counts = Counter(self.host_of(role).id for role in names)
            several = [host for host, count in counts.items() if count >= LEAST_ROLES]
            self._forks = HostForks(several, on_wait)

    def host_of(self, role: str) -> Host:
        """Return the host of a role."""
        return self._placement.hosts[self._placement.host_of(role)]

    def options(self, role: str) -> dict[str, Any]:
        """Return the options of Ray for the actor of a role."""
        host = self.host_of(role)
        forked = {} if self._forks is None else self._forks.options(host.id)
        if self._group is not None and role.startswith(_NODE_PREFIX):
            place = PlacementGroupSchedulingStrategy(self._group, self._bundles[host.id])
            return {"num_cpus": 1, "scheduling_strategy": place, **forked}
        return {"num_cpus": 0, "scheduling_strategy": on_host(host.id), **forked}

    def close(self) -> None:
        """Return the reserved CPUs, and end the fork servers. Idempotent."""
        if self._forks is not None:
            self._forks.close()
            self._forks = None
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _reserve(self, on_wait: Callable[[], None]) -> None:
        pairs = zip(self._placement.hosts, self._placement.systems, strict=True)
        used = [(host, len(run)) for host, run in pairs if run]
        self._bundles = {host.id: bundle for bundle, (host, _) in enumerate(used)}
        group: PlacementGroup = placement_group(
            [{"CPU": count} for _, count in used],
            strategy="PACK",
            name=self._session,
            bundle_label_selector=[{"ray.io/node-id": host.id} for host, _ in used],
        )
        deadline = time.monotonic() + self._runtime.start_timeout_s
        while not group.wait(_LOOK_S):
            on_wait()
            if time.monotonic() >= deadline:
                remove_placement_group(group)
                raise _no_capacity(used, self._runtime)
        self._group = group


def release(session: str) -> None:
    """Return the CPUs of a killed coordinator; Ray would keep them until the job ends."""
    with suppress(ValueError, RayError):  # there is none
        remove_placement_group(ray.util.get_placement_group(session))


def on_host(host: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy that starts an actor or a task on one host only."""
    return NodeAffinitySchedulingStrategy(host, soft=False)


def task_options(host: str) -> dict[str, Any]:
    """Return the options of Ray for a short task that runs on one host only."""
    return {"num_cpus": 0, "scheduling_strategy": on_host(host), "enable_task_events": False}


def check_link(placement: Placement, runtime: RuntimeSpec) -> None:
    """Refuse a link inside one host for roles on several.

    Raises:
        ClusterJobInitError: The roles need a link between hosts.
    """
    if runtime.link == "shared_memory" and placement.num_hosts > 1:
        raise ClusterJobInitError(
            "shared memory does not reach from host to host",
            code="link-within-host",
            where="runtime.link",
            value=f"shared_memory, with roles on {placement.num_hosts} hosts",
            remedy="set runtime.link to auto, or runtime.placement to STRICT_PACK",
        )


def _no_capacity(used: list[tuple[Host, int]], runtime: RuntimeSpec) -> ClusterJobInitError:
    free = ray.available_resources().get("CPU", 0)
    return ClusterJobInitError(
        "the Ray cluster has no capacity for all systems now",
        code="no-capacity-on-ray",
        where=f"runtime.address: {runtime.address}",
        value=f"{free:g} CPUs are free",
        rule=", ".join(f"{count} on {host.address}" for host, count in used),
        remedy="lower num_csx, wait for the other work to end, or add hosts",
    )
