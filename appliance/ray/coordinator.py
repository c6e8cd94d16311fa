"""The coordinator as an actor: it owns the roles, commands reach it from the user's process.

Roles are children of the coordinator and the coordinator is a child of the user's process, so
when one of them ends, all processes below it end too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import ray

from appliance.coordinator.cluster import cluster_ended
from appliance.coordinator.commands import LoadWeights, Run
from appliance.coordinator.roles import RecoverableRoles
from appliance.faults.shell import FaultyCoordinator, faults_of_coordinator
from appliance.health.watch import HealthWatch
from appliance.placement.placer import Placer
from appliance.ray.actor import HostedProcess
from appliance.ray.actors import signal_processes, wait_until_ended
from appliance.ray.connection.connection import enter, leave
from appliance.ray.connection.processes import lost_process
from appliance.ray.gather import check_ray, gather
from appliance.ray.hosts.places import on_host, release
from appliance.ray.hosts.pulses import Presence, look_at, watch_over
from appliance.ray.roles import RecoverableRayRoles
from appliance.spec import RuntimeSpec
from appliance.user_code import UserCode
from waferstream.core.roles.names import COORDINATOR, is_server
from waferstream.core.roles.role import Command, Result, RoleSpec


class Hosted(Protocol):
    """An object on a coordinator actor."""

    def do(self, command: Command[Result]) -> Result:
        """Do what a command says."""


Factory = Callable[[RecoverableRoles], Hosted]
"""Builds the hosted object around running roles; picklable."""


class HostedCoordinator(HostedProcess):
    """The actor: roles, and one object that is built around them."""

    _hosted: Hosted
    _faults: FaultyCoordinator | None = None

    def start(
        self,
        factory: Factory,
        specs: Sequence[RoleSpec],
        runtime: RuntimeSpec,
        session: str,
        placer: Placer | None,
        actors: Mapping[str, Any],
    ) -> dict[str, Presence]:
        """Start the roles, build the object, and return where the roles are."""
        self._faults = faults_of_coordinator(runtime.faults, [spec.name for spec in specs])
        with self._calling("start"):
            roles = RecoverableRayRoles(specs, runtime, session, self._goes_on, placer, actors)
            self._hosted = factory(roles)
        return dict(roles.presences)

    def do(self, command: Command[Any]) -> Any:
        """Let the object do what a command says."""
        with self._calling(str(command)):
            if self._faults is not None and isinstance(command, Run):
                self._faults.before_job(command.kind, command.last_step)
            return self._hosted.do(command)

    def _goes_on(self) -> None:
        """State in the pulse that this process waits for roles, which have a watch of their own."""
        self._pulse.call("waiting for roles")


class RayHosted:
    """An object on a coordinator actor, seen from the user's process.

    The constructor starts Ray if needed, the coordinator, and through it the roles. Errors raised
    in an actor are raised here with their own type and fields. Call ``shutdown`` in a ``finally``
    block: it also ends a call that Ctrl-C interrupted.

    Args:
        factory: Builds the object around its roles.
        specs: How to build each role.
        runtime: Where and how the actors run.
        session: A name that is unique among the clusters on these hosts.
        placer: What places the roles on hosts.
        actors: Actors of roles that run already; they outlive this object.
        spare: The actor of a coordinator that has loaded its code.
        owns_ray: Whether ``shutdown`` ends Ray, too, though Ray was started before.
    """

    def __init__(
        self,
        factory: Factory,
        specs: Sequence[RoleSpec],
        runtime: RuntimeSpec,
        session: str,
        placer: Placer | None = None,
        *,
        actors: Mapping[str, Any] = MappingProxyType({}),
        spare: Any = None,
        owns_ray: bool = False,
    ) -> None:
        self.presences: dict[str, Presence] = {}
        self._kept = actors.keys()
        self._reservation = "" if runtime.address == "local" else session
        self._watch: HealthWatch | None = None
        self._actor: Any = spare
        self._owns_ray = enter(runtime) or owns_ray
        try:
            if self._actor is None:
                self._actor = coordinator_actor(HostedCoordinator, f"{session}/{COORDINATOR}")
            own: Presence = self._wait_for(self._actor.presence.remote(), runtime.start_timeout_s)
            self.presences = {COORDINATOR: own}
            self._watch = watch_over({COORDINATOR: own}, {COORDINATOR: self._actor}, runtime)
            start = self._actor.start.remote(factory, specs, runtime, session, placer, actors)
            self.presences |= self._wait_for(start)
        except BaseException:
            self.shutdown()
            raise

    def do(self, command: Command[Result]) -> Result:
        """Let the hosted object do what a command says; return its result.

        Raises:
            ApplianceRuntimeServerError: The cluster has ended, or the coordinator died.
        """
        if self._actor is None:
            raise cluster_ended()
        check_ray()
        result: Result = self._wait_for(self._actor.do.remote(command), command.limit_s)
        return result

    def shutdown(self) -> None:
        """End the coordinator, its roles, and Ray if it was started here. Idempotent."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._actor is not None and ray.is_initialized():
            kept = self._kept if lost_process() is None else ()
            ending = [one for role, one in self.presences.items() if role not in kept]
            if lost_process() is None:
                ray.kill(self._actor)
                if self._reservation:
                    release(self._reservation)
            else:  # Ray would not do it any more
                signal_processes(ending)
            wait_until_ended(ending)
        self._actor = None
        if self._owns_ray:
            leave()
            self._owns_ray = False

    def _wait_for(self, future: Any, timeout_s: float | None = None) -> Any:
        findings = {} if self._watch is None else self._watch.findings
        future_of = {COORDINATOR: future}
        return gather(future_of, self.presences, timeout_s, findings, check_ray)[COORDINATOR]


def coordinator_actor(kind: type[HostedCoordinator], name: str) -> Any:
    """Return the handle of a new coordinator's actor, which starts meanwhile."""
    options: dict[str, Any] = {
        "name": name,
        "num_cpus": 0,
        # It ends with the user's process.
        "scheduling_strategy": on_host(ray.get_runtime_context().get_node_id()),
        "enable_task_events": False,  # else Ray's gcs_server keeps 3 KiB of each call
    }
    return ray.remote(**options)(kind).remote(UserCode.here())


class RayCluster(RayHosted):
    """A cluster on Ray, to which commands travel."""

    def do(self, command: Command[Any]) -> Any:
        if isinstance(command, LoadWeights):
            for part in command.parts():
                super().do(part)
            return None
        return super().do(command)

    def newest_step(self) -> int:
        here = self.presences[COORDINATOR].host
        servers = {
            role: presence
            for role, presence in self.presences.items()
            if is_server(role) and presence.host == here
        }
        return max((pulse.step for pulse in look_at(servers).values()), default=0)
