"""All roles of a cluster as Ray actors.

Ray places the actors and carries the calls that control a job; the roles exchange their own
messages over links. No actor is detached: all end with the process that started them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import ray

from appliance.health.diagnosis import all_wait
from appliance.health.link_waits import between_hosts
from appliance.health.watch import HealthWatch
from appliance.placement.placer import Placer
from appliance.ray.actors import start_actor, wait_until_ended
from appliance.ray.connection.connection import enter, leave
from appliance.ray.gather import gather
from appliance.ray.hosts.places import Places
from appliance.ray.hosts.presence import Presence
from appliance.ray.hosts.pulses import watch_over
from appliance.ray.hosts.survey import placer_on, survey
from appliance.spec import RuntimeSpec
from swarmx.links.endpoint import Address
from waferstream.core.errors import ApplianceDeadlockError
from waferstream.core.roles.role import Command, Job, Report, Result, RoleSpec


class RayRoles:
    """Roles that run in parallel, each in its own process.

    The constructor returns when all roles are built and connected.

    Args:
        specs: How to build each role.
        runtime: Where and how the actors run.
        session: A name that is unique among the clusters on these hosts.
        on_wait: Called again and again while the caller waits for roles, at least every half
            second.
        placer: What places the roles on hosts; by default on all that answer.
        actors: Actors that run already and have no job, by role.

    Raises:
        ClusterJobInitError: Ray has no capacity for the roles, or they do not start within
            ``runtime.start_timeout_s``.
        WaferStreamError: A role could not be built.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        runtime: RuntimeSpec,
        session: str,
        on_wait: Callable[[], None] = lambda: None,
        placer: Placer | None = None,
        actors: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._runtime = runtime
        self._session = session
        self._on_wait = on_wait
        self._kept = actors
        self._actors: dict[str, Any] = {}
        self._presences: dict[str, Presence] = {}
        self._places: Places | None = None
        self._running: dict[str, Any] = {}  # futures of the last job
        self._watch: HealthWatch | None = None
        self._owns_ray = enter(runtime)
        try:
            self._placer = placer or placer_on(survey(runtime), runtime, fan_out=4)
            self._place()
            self._open(session)
            self._watch = watch_over(self._presences, self._actors, runtime)
            self._connect()
        except BaseException:
            self.shutdown()
            raise

    @property
    def presences(self) -> Mapping[str, Presence]:
        """Locations of the roles."""
        return self._presences

    def run(self, job: Job) -> list[Report]:
        self._running = {role: actor.run.remote(job) for role, actor in self._actors.items()}
        reports = self._gather(self._running)
        host_of = {role: presence.host_address for role, presence in self._presences.items()}
        return [
            self._on_own_clock(role, between_hosts(report, host_of))
            for role, report in reports.items()
        ]

    def do(self, to: Collection[str] | None, command: Command[Result]) -> dict[str, Result]:
        names = list(self._actors if to is None else to)
        # Once per host, not once per role, where several get it.
        shared = ray.put(command) if len(names) > 1 else command
        return self._gather({name: self._actors[name].do.remote(shared) for name in names})

    def shutdown(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if ray.is_initialized():
            for actor in self._actors.values():
                ray.kill(actor)
            if self._places is not None:
                self._places.close()
            wait_until_ended(self._presences.values(), self._on_wait)
        self._actors.clear()
        self._presences.clear()
        self._places = None
        if self._owns_ray:
            leave()
            self._owns_ray = False

    def _on_own_clock(self, role: str, report: Report) -> Report:
        """Return a report whose activities are on the clock of this host."""
        own_ns = time.time_ns() - time.perf_counter_ns()
        shift_ns = self._presences[role].clock_ns - own_ns
        if not report.intervals or self._presences[role].host == self._placer.hosts[0].id:
            return report
        moved = [
            replace(each, start_ns=each.start_ns + shift_ns, end_ns=each.end_ns + shift_ns)
            for each in report.intervals
        ]
        return replace(report, intervals=moved)

    def _place(self) -> None:
        """Start one actor per role, but for those that run."""
        self._places = Places(
            self._specs, self._placer, self._runtime, self._on_wait, self._session
        )
        for role in self._specs:
            started = self._kept.get(role)
            self._actors[role] = started or start_actor(role, self._session, self._places)

    def _open(self, session: str) -> None:
        """Let every role open its link, within ``start_timeout_s``."""
        futures = {
            role: actor.open.remote(role, self._runtime, session, self._placer.hosts[0].id)
            for role, actor in self._actors.items()
        }
        limit_s = self._runtime.start_timeout_s
        self._presences.update(gather(futures, {}, limit_s, check=self._on_wait))

    def _connect(self, kept: Collection[str] = ()) -> None:
        """Send every role the addresses of the others, and build those that are not kept."""
        directory = self._directory()
        pools = self._pools(kept)
        futures = {
            role: self._actors[role].connect.remote(
                None if role in kept else self._specs[role], directory, pools[presence.host]
            )
            for role, presence in self._presences.items()
        }
        self._gather(futures)

    def _directory(self) -> dict[str, Address]:
        """Return where every role is reached."""
        return {role: presence.address for role, presence in self._presences.items()}

    def _gather(self, futures: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for all roles; the health watch says why a role has ended, if it ended it."""
        assert self._watch is not None, "calls follow the start"
        try:
            return gather(
                futures, self._presences, findings=self._watch.findings, check=self._on_wait
            )
        except ApplianceDeadlockError as error:
            if error.code != "link-stalled":
                raise
            raise all_wait(self._watch.look(), error) from error

    def _pools(self, kept: Collection[str]) -> dict[str, Any]:
        """Return, for each host, the future pool of its cores, from a role that is kept if any."""
        keepers = {self._presences[role].host: role for role in (*self._presences, *kept)}
        return {host: self._actors[role].open_cores.remote() for host, role in keepers.items()}
