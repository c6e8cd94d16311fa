"""Starts clusters on Ray, one after the other, on the hosts that answer then."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from appliance.coordinator.coordinator import Coordinator
from appliance.placement.placer import Placement, Placer
from appliance.plan import ClusterPlan
from appliance.ray.actors import clear_actors, signal_processes, start_actor, wait_until_ended
from appliance.ray.connection.connection import enter, leave
from appliance.ray.connection.processes import lost_process
from appliance.ray.coordinator import HostedCoordinator, RayCluster, coordinator_actor
from appliance.ray.gather import check_ray
from appliance.ray.hosts.places import Places
from appliance.ray.hosts.pulses import Presence
from appliance.ray.hosts.survey import await_free_cpus, placer_on, survey, with_free_cpus
from appliance.role_group import names_of
from waferstream.core.errors import ClusterJobInitError
from waferstream.core.roles.role import RoleSpec

log = logging.getLogger("waferstream")

_RETURN_S = 3.0
"""How long a start waits for the CPUs of the cluster before."""


class RayStarter:
    """Starts clusters of one plan.

    With ``plan.autorestart`` there may be several clusters. Ray stays for the next one until
    ``close``, unless one of its own processes has died. If Ray is private, so do the processes of
    the roles, and a spare one waits for the next coordinator. The hosts of a joined Ray may be
    others the next time: where they are too few, the next cluster has fewer systems, at least
    ``plan.least_num_csx``.
    ``check`` looks at each placement before anything starts there, and may raise.
    """

    def __init__(
        self, plan: ClusterPlan, check: Callable[[Placement], None] = lambda _: None
    ) -> None:
        self._plan = plan
        self._num_csx = plan.size.num_csx
        self._runtime = plan.spec.runtime
        self._fan_out = plan.spec.machine.swarmx.fan_out
        self._check = check
        self._keeps_ray = plan.autorestart is not None
        self._least_num_csx = plan.least_num_csx
        self._placer: Placer | None = None  # of the newest cluster
        self._num_systems = 0  # of the newest cluster
        self._owns_ray = False
        self._actors: dict[str, Any] = {}  # of roles, started by this process
        self._presences: Mapping[str, Presence] = {}
        self._spare: Any = None

    def start(self) -> RayCluster:
        """Start a cluster; ClusterJobInitError if it does not start."""
        if self._keeps_ray and lost_process() is not None:
            self.close()
        self._owns_ray = enter(self._runtime) or self._owns_ray
        # Nobody can take its names before it does.
        session = f"waferstream-{secrets.token_hex(16)}"
        try:
            placer = self._placer_now()
            num_csx = self._size_on(placer)
            self._check(placer.place(num_csx))
            specs = self._plan.roles(num_csx, placer=placer)
            make = partial(self._plan.coordinator, num_csx=num_csx, placer=placer)
            self._placer, self._num_systems = placer, num_csx
            if self._keeps_ray and self._runtime.address == "local":
                return self._start_with_spares(make, specs, session, placer)
            owns_ray = self._owns_ray and not self._keeps_ray
            return RayCluster(make, specs, self._runtime, session, placer, owns_ray=owns_ray)
        except BaseException:
            self.close()
            raise

    def has_better_hosts(self) -> bool:
        """Return whether hosts have joined that would take more systems, or some of them."""
        if self._runtime.address == "local" or self._placer is None:
            return False
        known = {host.id for host in self._placer.hosts}
        joined = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in known]
        if not any(node["Resources"].get("CPU") for node in joined):
            return False
        try:
            found = survey(self._runtime)
        except ClusterJobInitError as error:
            log.warning("Hosts that have joined cannot be used: %s", error)
            return False
        kept = [host for host in self._placer.hosts if host.id in {each.id for each in found}]
        new = with_free_cpus([host for host in found if host.id not in known], 0)
        placer = placer_on([*kept, *new], self._runtime, self._fan_out)
        now = placer.place(placer.most(self._num_csx))
        before = self._placer.place(self._num_systems)
        return (now.num_systems, now.num_hosts) > (before.num_systems, before.num_hosts)

    def close(self) -> None:
        """End the processes of roles, and shut down Ray if it was started here. Idempotent."""
        if ray.is_initialized() and self._actors:
            if lost_process() is None:
                self._end_actors()
            else:  # Ray would not do it any more
                signal_processes(self._presences.values())
            wait_until_ended(self._presences.values())
        self._actors, self._presences, self._spare = {}, {}, None
        if self._owns_ray:
            leave()
            self._owns_ray = False

    def _start_with_spares(
        self,
        make: Callable[..., Coordinator],
        specs: Sequence[RoleSpec],
        session: str,
        placer: Placer,
    ) -> RayCluster:
        """Start a cluster with the processes that are left, and a spare process for the next."""
        roles = [spec.name for spec in specs]
        names = [name for spec in specs for name in names_of(spec)]
        places = Places(names, placer, self._runtime)
        free = clear_actors(self._actors, self._presences, check_ray)
        self._actors = {
            role: free.get(role) or start_actor(role, session, places) for role in roles
        }
        spare, self._spare = self._spare, None
        cluster = RayCluster(
            make, specs, self._runtime, session, placer, actors=self._actors, spare=spare
        )
        self._presences = {role: cluster.presences[role] for role in roles}
        self._spare = coordinator_actor(SpareCoordinator, f"{session}/spare")
        self._spare.load.remote(make, specs)
        return cluster

    def _end_actors(self) -> None:
        for actor in (*self._actors.values(), self._spare):
            with suppress(RayError):
                if actor is not None:
                    ray.kill(actor)

    def _placer_now(self) -> Placer:
        """Return the placer of roles on the hosts that answer now."""
        hosts = survey(self._runtime)
        if self._runtime.address != "local":
            if self._placer is not None:
                await_free_cpus(_cpus_of(self._placer.place(self._num_systems)), _RETURN_S)
            hosts = with_free_cpus(hosts, self._num_csx)
        return placer_on(hosts, self._runtime, self._fan_out)

    def _size_on(self, placer: Placer) -> int:
        """Return the number of systems: all, or as many as hosts are left for after a loss."""
        most = placer.most(self._num_csx)
        if self._placer is None or not self._least_num_csx <= most < self._num_csx:
            return self._num_csx  # which the placer refuses if they are too many
        log.warning("The hosts take %d of %d systems: the run goes on", most, self._num_csx)
        return most


def _cpus_of(placement: Placement) -> dict[str, int]:
    """Return how many CPUs of each host, by its id, a placement reserves."""
    pairs = zip(placement.hosts, placement.systems, strict=True)
    return {host.id: len(run) for host, run in pairs if run}


class SpareCoordinator(HostedCoordinator):
    """A process that waits until a coordinator is lost."""

    def load(self, make: Callable[..., Coordinator], specs: Sequence[RoleSpec]) -> None:
        """Load the code of a coordinator: unpickling the arguments does."""
