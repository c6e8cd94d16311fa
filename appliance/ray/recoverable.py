"""Roles on Ray of which lost ones can be replaced (appliance.recovery.roles).

Every attempt has links of its own: all roles close theirs and open new ones under a new session, so
no message of an earlier attempt reaches a later one. The coordinator has a link, too, on which it
tells roles to end a job.

A new process takes seconds until it has loaded its code. So one spare process waits on the host of
a private Ray, from the first protected job on, and a lost role goes on there at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from appliance.ray.actor import RoleActor, own_address
from appliance.ray.actors import start_actor, wait_until_ended
from appliance.ray.gather import error_of, outcomes
from appliance.ray.roles import RayRoles
from appliance.user_code import UserCode
from swarmx.links.endpoint import Address
from swarmx.links.link import Link, open_link
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import COORDINATOR, Abort, Envelope
from waferstream.core.roles.commands import ReadStepsHeld
from waferstream.core.roles.role import RoleSpec

_PATIENCE_S = 0.3  # between two orders to end a job
_REACHED_S = 1.0


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
            self._link.endpoint.send(Envelope(COORDINATOR, role, Abort(0)))

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
