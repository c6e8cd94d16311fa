"""The coordinator as an actor: it owns the roles and hosts the object that drives them.

The user's process holds a proxy. Roles are children of the coordinator and the coordinator is a
child of the user's process, so whichever ends, all below it end too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import ray

from appliance.ray.actor import HostedProcess, Presence
from appliance.ray.connection import enter
from appliance.ray.gather import gather
from appliance.ray.roles import RayRoles, wait_until_ended
from appliance.roles import Roles
from appliance.spec import RuntimeSpec
from wsc.core.names import COORDINATOR
from wsc.core.role import RoleSpec

Factory = Callable[[Roles], object]
"""Builds the hosted object around running roles; picklable."""


class HostedCoordinator(HostedProcess):
    """The actor: roles, and one object that was built around them."""

    _hosted: object

    def start(
        self, factory: Factory, specs: Sequence[RoleSpec], runtime: RuntimeSpec, session: str
    ) -> list[Presence]:
        """Start the roles and build the object; returns where the roles are."""
        roles = RayRoles(specs, runtime, session)
        self._hosted = factory(roles)
        return roles.presences

    def invoke(self, method: str, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call a method of the object."""
        return getattr(self._hosted, method)(*args, **keywords)


class RayHosted:
    """The user's end: starts Ray if need be, the coordinator, and through it the roles.

    Errors that are raised over there are raised here as themselves. Use ``shutdown`` in a
    ``finally``: it also ends a call that Ctrl-C interrupted.
    """

    def __init__(
        self, factory: Factory, specs: Sequence[RoleSpec], runtime: RuntimeSpec, session: str
    ) -> None:
        self._logs: dict[str, str] = {}
        self._presences: list[Presence] = []
        self._actor: Any = None
        self._owns_ray = enter(runtime)
        try:
            options: dict[str, Any] = {"name": f"{session}/{COORDINATOR}", "num_cpus": 0}
            self._actor = ray.remote(**options)(HostedCoordinator).remote(sys.path)
            self._logs[COORDINATOR] = self._wait_for(
                self._actor.log_path.remote(), runtime.start_timeout_s
            )
            start = self._actor.start.remote(factory, specs, runtime, session)
            self._presences = self._wait_for(start)
        except BaseException:
            self.shutdown()
            raise

    def invoke(self, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method of the hosted object and return its result."""
        return self._wait_for(self._actor.invoke.remote(method, args, keywords))

    def shutdown(self) -> None:
        """End the coordinator, its roles, and Ray if it was started here. Idempotent."""
        if self._actor is not None and ray.is_initialized():
            ray.kill(self._actor)
            wait_until_ended(self._presences)
        self._actor = None
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    def _wait_for(self, future: Any, timeout_s: float | None = None) -> Any:
        return gather({COORDINATOR: future}, self._logs, timeout_s)[COORDINATOR]
