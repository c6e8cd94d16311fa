"""Starts clusters on Ray, one after the other, on the hosts that answer then."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

from appliance.coordinator import Coordinator
from appliance.placement import Placer
from appliance.ray.actor import Presence
from appliance.ray.actors import clear_actors, signal_processes, start_actor, wait_until_ended
from appliance.ray.connection import enter, leave, lost_process
from appliance.ray.coordinator import HostedCoordinator, RayCluster, coordinator_actor
from appliance.ray.gather import check_ray
from appliance.ray.places import Places
from appliance.ray.survey import placer_on, survey, with_free_cpus
from appliance.spec import RuntimeSpec
from wsc.core.role import RoleSpec


class Build(Protocol):
    """Returns the specs of all roles for a number of systems, on the hosts of a placer."""

    def __call__(self, num_csx: int, *, placer: Placer | None = None) -> Sequence[RoleSpec]: ...


class RayStarter:
    """Starts clusters of one specification.

    With ``keeps_ray`` Ray stays for the next cluster until ``close``, unless one of its own
    processes has died. If Ray is private, so do the processes of the roles, and a spare one waits
    for the next coordinator. (The hosts of a joined Ray may be others the next time.)
    """

    def __init__(
        self,
        make: Callable[..., Coordinator],
        build: Build,
        num_csx: int,
        runtime: RuntimeSpec,
        fan_out: int,
        *,
        keeps_ray: bool,
    ) -> None:
        self._make = make
        self._build = build
        self._num_csx = num_csx
        self._runtime = runtime
        self._fan_out = fan_out
        self._keeps_ray = keeps_ray
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
            placer = self._placer()
            build = partial(self._build, placer=placer)
            specs, make = build(self._num_csx), partial(self._make, build=build)
            if self._keeps_ray and self._runtime.address == "local":
                return self._start_with_spares(make, specs, session, placer)
            owns_ray = self._owns_ray and not self._keeps_ray
            return RayCluster(make, specs, self._runtime, session, placer, owns_ray=owns_ray)
        except BaseException:
            self.close()
            raise

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
        places = Places(roles, placer, self._runtime)
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

    def _placer(self) -> Placer:
        """Return what places the roles on the hosts that answer now."""
        hosts = survey(self._runtime)
        if self._runtime.address != "local":
            hosts = with_free_cpus(hosts, self._num_csx)
        return placer_on(hosts, self._runtime, self._fan_out)


class SpareCoordinator(HostedCoordinator):
    """A process that waits until a coordinator is lost."""

    def load(self, make: Callable[..., Coordinator], specs: Sequence[RoleSpec]) -> None:
        """Load the code of a coordinator: unpickling the arguments does."""
