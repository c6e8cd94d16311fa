"""All roles of a cluster as Ray actors.

Ray places the actors and carries the control of a job; the roles' own messages travel on the
links between them. Nothing is detached: when the process that made the roles ends, they end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from appliance.ray.actor import Presence, RoleActor
from appliance.ray.connection import enter
from appliance.ray.gather import gather
from appliance.ray.placement import cpus_of, reserve
from appliance.spec import RuntimeSpec
from wsc.core.role import Job, Report, RoleSpec

_END_S = 5.0
_POLL_S = 0.01


class RayRoles:
    """Roles that run in parallel, each in its own process.

    ``session`` is a name that no other cluster on these hosts has. The constructor returns when
    all roles are built and connected. It raises ClusterJobInitError when Ray has no room for them
    or they do not come up within ``runtime.start_timeout_s``, and whatever a role raises while it
    is built.
    """

    def __init__(self, specs: Sequence[RoleSpec], runtime: RuntimeSpec, session: str) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._runtime = runtime
        self._session = session
        self._actors: dict[str, Any] = {}
        self._presences: dict[str, Presence] = {}
        self._group: PlacementGroup | None = None
        self._owns_ray = enter(runtime)
        try:
            self._place()
            self._open()
            self._connect()
        except BaseException:
            self.shutdown()
            raise

    @property
    def presences(self) -> list[Presence]:
        """Where the roles are."""
        return list(self._presences.values())

    def run(self, job: Job) -> list[Report]:
        futures = {role: actor.run.remote(job) for role, actor in self._actors.items()}
        return list(gather(futures, self._logs).values())

    def call(self, role: str, method: str, *args: Any) -> Any:
        future = self._actors[role].call.remote(method, *args)
        return gather({role: future}, self._logs)[role]

    def call_all(self, method: str, *args: Any) -> None:
        shared = [ray.put(arg) for arg in args]  # once per host, not once per role
        futures = {role: a.call.remote(method, *shared) for role, a in self._actors.items()}
        gather(futures, self._logs)

    def shutdown(self) -> None:
        if ray.is_initialized():
            for actor in self._actors.values():
                ray.kill(actor)
            if self._group is not None:
                remove_placement_group(self._group)
            wait_until_ended(self.presences)
        self._actors.clear()
        self._presences.clear()
        self._group = None
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    @property
    def _logs(self) -> dict[str, str]:
        return {role: presence.log_path for role, presence in self._presences.items()}

    def _place(self) -> None:
        """Start one actor per role."""
        self._group = reserve(list(self._specs), self._runtime)
        for bundle, role in enumerate(self._specs):
            options: dict[str, Any] = {
                "name": f"{self._session}/{role}",
                "num_cpus": cpus_of(role, self._runtime),
                "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, bundle),
            }
            # A class of the role's own name: that is what ps and Ray's messages show.
            named = type(role, (RoleActor,), {})
            self._actors[role] = ray.remote(**options)(named).remote(sys.path)

    def _open(self) -> None:
        """Have every role open its link, in time."""
        futures = {
            role: actor.open.remote(role, self._runtime, self._session)
            for role, actor in self._actors.items()
        }
        self._presences = gather(futures, {}, self._runtime.start_timeout_s)

    def _connect(self) -> None:
        """Tell every role where the others are, and have it built."""
        directory = {role: presence.address for role, presence in self._presences.items()}
        pools = self._pools()
        futures = {
            role: self._actors[role].connect.remote(
                self._specs[role], directory, pools[presence.host]
            )
            for role, presence in self._presences.items()
        }
        gather(futures, self._logs)

    def _pools(self) -> dict[str, Any]:
        """For each host the pool of its cores, as the future result of one role there."""
        keepers = {presence.host: role for role, presence in self._presences.items()}
        return {host: self._actors[role].open_cores.remote() for host, role in keepers.items()}


def wait_until_ended(presences: Iterable[Presence]) -> None:
    """Wait a moment until the processes of killed roles on this host are gone."""
    here = ray.get_runtime_context().get_node_id()
    deadline = time.monotonic() + _END_S
    for presence in presences:
        while presence.host == here and _runs(presence.pid) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
