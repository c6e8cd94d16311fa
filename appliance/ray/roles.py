"""All roles of a cluster as Ray actors, of which lost ones can be replaced.

Roles that share a process (appliance.role_group) count as one, by a name that tells all of them.

Ray places the actors and carries the calls that control a job; the roles exchange their own
messages over links. No actor is detached: all end with the process that started them.

Every attempt has links of its own: all roles close theirs and open new ones under a new session, so
no message of an earlier attempt reaches a later one. The coordinator has a link, too, on which it
tells roles to end a job.

A new process takes seconds until it has loaded its code. So one spare process waits on the host of
a private Ray, from the first protected job on, and a lost role goes on there at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from appliance.health.link_waits import between_hosts
from appliance.health.watch import HealthWatch, all_wait
from appliance.placement.placer import Placer
from appliance.ray.actor import RoleActor, own_address
from appliance.ray.actors import start_actor, wait_until_ended
from appliance.ray.connection.connection import enter, leave
from appliance.ray.gather import error_of, gather, outcomes
from appliance.ray.hosts.places import Places
from appliance.ray.hosts.pulses import Presence, watch_over
from appliance.ray.hosts.survey import placer_on, survey
from appliance.role_group import names_of
from appliance.spec import RuntimeSpec
from appliance.user_code import UserCode
from swarmx.links.endpoint import Address
from swarmx.links.link import Link, open_link
from waferstream.core.errors import ApplianceDeadlockError, WaferStreamError
from waferstream.core.messages.messages import Abort, Envelope
from waferstream.core.roles.commands import ReadStepsHeld
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import Command, Job, Report, Result, RoleSpec

_PATIENCE_S = 0.3  # between two orders to end a job
_REACHED_S = 1.0


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
        host_of = {
            role: presence.host_address
            for presence in self._presences.values()
            for role in presence.roles
        }
        own = [
            self._on_own_clock(role, between_hosts(report, host_of))
            for role, report in reports.items()
        ]
        return [*own, *(other for report in own for other in report.others)]

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
        names = [name for spec in self._specs.values() for name in names_of(spec)]
        self._places = Places(names, self._placer, self._runtime, self._on_wait, self._session)
        for role in self._specs:
            started = self._kept.get(role)
            self._actors[role] = started or start_actor(role, self._session, self._places)

    def _open(self, session: str) -> None:
        """Let every role open its link, within ``start_timeout_s``."""
        futures = {
            role: actor.open.remote(
                names_of(self._specs[role]), self._runtime, session, self._placer.hosts[0].id
            )
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
        return {
            name: presence.address
            for presence in self._presences.values()
            for name in presence.roles
        }

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


class RecoverableRayRoles(RayRoles):
    """Roles in parallel, each in its own process, that survive the loss of some of them."""

    _link: Link | None = None
    _spare: Any = None

    def prepare(self) -> None:
        if self._spare is None and self._runtime.address == "local":
            named = type("spare", (RoleActor,), {})
            self._spare = ray.remote(num_cpus=0)(named).remote(UserCode.here())
            self._spare.load.remote(list(self._specs.values()))

    def abort(self) -> Mapping[str, WaferStreamError]:
        unfinished = {future: role for role, future in self._running.items()}
        while unfinished:
            for _ in outcomes(unfinished, _PATIENCE_S, self._on_wait):
                pass
            for role in unfinished.values():
                self._order_end(role)
        self._running = {}
        return self._lost()

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        lost = self.abort()
        if gone := lost.keys() & {*servers}:
            raise lost[min(gone)]
        return frozenset().union(*self.do(servers, ReadStepsHeld()).values())

    def rebuild(self, specs: Sequence[RoleSpec], lost: Collection[str]) -> frozenset[str]:
        assert self._places is not None, "a place comes first"
        before = self._specs
        self._specs = {spec.name: spec for spec in specs}
        kept = frozenset(
            name
            for name, spec in self._specs.items()
            if name not in lost and before.get(name) == spec
        )
        self._end([role for role in before if role in lost or role not in self._specs])
        session = f"{self._session}.{next(self._sessions)}"
        for role in self._specs:
            if role not in self._actors:
                started = self._spare or start_actor(role, session, self._places)
                self._actors[role] = started
                self._spare = None
        self._open(session)
        self._connect(kept)
        return frozenset(self._specs) - kept

    def shutdown(self) -> None:
        self._close_link()
        if self._spare is not None and ray.is_initialized():
            ray.kill(self._spare)
        self._spare = None
        super().shutdown()

    def _place(self) -> None:
        self._sessions = count(1)
        super()._place()

    def _open(self, session: str) -> None:
        self._close_link()
        self._link = open_link(
            self._runtime.carrier,
            COORDINATOR,
            session,
            host=own_address(self._runtime),
            start_timeout_s=_REACHED_S,
            stall_timeout_s=_REACHED_S,
            tls=self._runtime.tls,
        )
        super()._open(session)

    def _directory(self) -> dict[str, Address]:
        assert self._link is not None, "open comes first"
        directory = super()._directory() | {COORDINATOR: self._link.endpoint.address}
        self._link.endpoint.connect(directory)
        return directory

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _order_end(self, role: str) -> None:
        """Tell a role to end its job; it may have ended, or died, meanwhile."""
        assert self._link is not None, "open comes first"
        self._on_wait()
        with suppress(WaferStreamError):
            first = names_of(self._specs[role])[0]
            self._link.endpoint.send(Envelope(COORDINATOR, first, Abort(0)))

    def _lost(self) -> dict[str, WaferStreamError]:
        """Return the roles whose process has ended, each with the reason."""
        assert self._watch is not None, "calls follow the start"
        asked = {actor.presence.remote(): role for role, actor in self._actors.items()}
        lost = {}
        for role, outcome in outcomes(asked, None, self._on_wait):
            if isinstance(outcome, RayActorError):
                finding = self._watch.findings.pop(role, None)
                lost[role] = error_of(role, outcome, self._presences.get(role), finding)
        return lost

    def _end(self, roles: Collection[str]) -> None:
        """End the processes of roles."""
        presences = [self._presences.pop(role) for role in roles if role in self._presences]
        for role in roles:
            if role in self._actors:
                with suppress(RayError):
                    ray.kill(self._actors.pop(role))
        wait_until_ended(presences, self._on_wait)
