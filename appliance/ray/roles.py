"""All roles of a cluster as Ray actors.

Ray places the actors and carries the calls that control a job; the roles exchange their own
messages over links. No actor is detached: all end with the process that started them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import ray
import torch
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from appliance.health.diagnosis import all_wait
from appliance.health.watch import HealthWatch
from appliance.ray.actor import Presence, RoleActor
from appliance.ray.connection import enter
from appliance.ray.gather import gather
from appliance.ray.hosts import watch_over
from appliance.spec import RuntimeSpec
from appliance.user_code import UserCode
from swarmx.links.endpoint import Address
from swarmx.links.memory import unmap_lost_blocks
from wsc.core.errors import ApplianceDeadlockError, ClusterJobInitError
from wsc.core.installation import Installation
from wsc.core.messages import node_name
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import TensorSpec
from wsc.core.role import Job, Progress, Report, RoleSpec, WeightHolder

_END_S = 5.0
_POLL_S = 0.01
_LOOK_S = 1.0

# CPUs that a role asks of Ray. Any number of roles fits a laptop; the pool of cores limits how
# many compute at a time.
_SHARE_OF_A_CPU = 0.001
_NODE_PREFIX = node_name(0).rstrip("0")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class RayRoles:
    """Roles that run in parallel, each in its own process.

    The constructor returns when all roles are built and connected.

    Args:
        specs: How to build each role.
        runtime: Where and how the actors run.
        session: A name that is unique among the clusters on these hosts.
        on_wait: Called again and again while the caller waits for roles, at least every half
            second.

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
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._runtime = runtime
        self._session = session
        self._on_wait = on_wait
        self._actors: dict[str, Any] = {}
        self._presences: dict[str, Presence] = {}
        self._group: PlacementGroup | None = None
        self._bundles: dict[str, int] = {}
        self._running: dict[str, Any] = {}  # futures of the last job
        self._watch: HealthWatch | None = None
        self._owns_ray = enter(runtime)
        try:
            self._place()
            self._open(session)
            self._watch = watch_over(self._presences, self._actors, runtime)
            self._connect()
        except BaseException:
            self.shutdown()
            raise

    @property
    def presences(self) -> list[Presence]:
        """Locations of the roles."""
        return list(self._presences.values())

    def run(self, job: Job) -> list[Report]:
        self._running = {role: actor.run.remote(job) for role, actor in self._actors.items()}
        return list(self._gather(self._running).values())

    def install(self, installation: Installation) -> None:
        shared = ray.put(installation)  # sent once per host, not once per role
        self._gather({role: a.install.remote(shared) for role, a in self._actors.items()})

    def train_with(self, server: str, optimizer: OptimizerSpec) -> None:
        self.call(server, WeightHolder.train_with, optimizer)

    def fill(self, server: str, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        self.call(server, WeightHolder.fill, values, state)

    def layout(self, server: str, states: Collection[str]) -> list[TensorSpec]:
        return self.call(server, WeightHolder.layout, states)

    def save(
        self, server: str, path: Path, offsets: Mapping[str, int], is_background: bool
    ) -> None:
        self.call(server, WeightHolder.save, path, offsets, is_background)

    def finish_saving(self, server: str) -> None:
        self.call(server, WeightHolder.finish_saving)

    def restore(self, server: str, path: Path, state: str, strict: bool) -> None:
        self.call(server, WeightHolder.restore, path, state, strict)

    def masters(self, server: str, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        return self.call(server, WeightHolder.masters, names, state)

    def progress(self, server: str) -> Progress | None:
        return self.call(server, WeightHolder.progress)

    def rollback(self, server: str, attempt: int, step: int) -> None:
        self.call(server, WeightHolder.rollback, attempt, step)

    def call(
        self,
        role: str,
        method: Callable[Concatenate[R, P], T],
        *args: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Call a method of one role between jobs and return its result."""
        future = self._actors[role].call.remote(method.__name__, args, keywords)
        result: T = self._gather({role: future})[role]
        return result

    def shutdown(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if ray.is_initialized():
            for actor in self._actors.values():
                ray.kill(actor)
            if self._group is not None:
                remove_placement_group(self._group)
            wait_until_ended(self.presences, self._on_wait)
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
        self._group = _reserve(list(self._specs), self._runtime, self._on_wait)
        self._bundles = {role: bundle for bundle, role in enumerate(self._specs)}
        for role in self._specs:
            self._actors[role] = self._started(role, self._session)

    def _started(self, role: str, session: str) -> Any:
        """Return the handle of a new actor, which starts meanwhile."""
        assert self._group is not None, "a place comes first"
        place = PlacementGroupSchedulingStrategy(self._group, self._bundles[role])
        options: dict[str, Any] = {
            "name": f"{session}/{role}",
            "num_cpus": _cpus_of(role, self._runtime),
            "enable_task_events": False,  # else Ray's gcs_server keeps 3 KiB of each call
            "scheduling_strategy": place,
        }
        # A class named after the role: ps and Ray's messages show this name.
        named = type(role, (RoleActor,), {})
        return ray.remote(**options)(named).remote(UserCode.here())

    def _open(self, session: str) -> None:
        """Let every role open its link, within ``start_timeout_s``."""
        futures = {
            role: actor.open.remote(role, self._runtime, session)
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
            return gather(futures, self._logs, findings=self._watch.findings, check=self._on_wait)
        except ApplianceDeadlockError as error:
            if error.code != "link-stalled":
                raise
            raise all_wait(self._watch.look(), error) from error

    def _pools(self, kept: Collection[str]) -> dict[str, Any]:
        """Return, for each host, the future pool of its cores, from a role that is kept if any."""
        keepers = {self._presences[role].host: role for role in (*self._presences, *kept)}
        return {host: self._actors[role].open_cores.remote() for host, role in keepers.items()}


def _cpus_of(role: str, runtime: RuntimeSpec) -> float:
    """Return the CPUs that a role asks of Ray: on a joined cluster one for each CS system."""
    if runtime.address != "local" and role.startswith(_NODE_PREFIX):
        return 1.0
    return _SHARE_OF_A_CPU


def _reserve(
    roles: Sequence[str], runtime: RuntimeSpec, on_wait: Callable[[], None]
) -> PlacementGroup:
    """Reserve a placement group with one bundle per role, in order: all roles fit, or none start.

    Raises:
        ClusterJobInitError: At once when the cluster has too few CPUs; after ``start_timeout_s``
            when they do not become free, or the hosts are too few for the strategy.
    """
    bundles = [{"CPU": _cpus_of(role, runtime)} for role in roles]
    requested = sum(bundle["CPU"] for bundle in bundles)
    if requested > ray.cluster_resources().get("CPU", 0):
        raise _does_not_fit("the Ray cluster has too few CPUs", "too-few-cpus", requested, runtime)
    group: PlacementGroup = placement_group(bundles, strategy=runtime.placement)
    deadline = time.monotonic() + runtime.start_timeout_s
    while not group.wait(_LOOK_S):
        on_wait()
        if time.monotonic() < deadline:
            continue
        remove_placement_group(group)
        what = "the Ray cluster has no capacity for all roles now"
        raise _does_not_fit(what, "no-capacity-on-ray", requested, runtime)
    return group


def _does_not_fit(
    what: str, code: str, requested: float, runtime: RuntimeSpec
) -> ClusterJobInitError:
    total = ray.cluster_resources().get("CPU", 0)
    free = ray.available_resources().get("CPU", 0)
    hosts = sum(node["Alive"] for node in ray.nodes())
    return ClusterJobInitError(
        what,
        code=code,
        where=f"runtime.address: {runtime.address}",
        value=f"{total:g} CPUs on {hosts} hosts, {free:g} of them free",
        rule=f"{requested:g} CPUs, placed {runtime.placement}: one for each CS system",
        remedy="lower num_csx, change runtime.placement, or add hosts",
    )


def kill_processes(presences: Iterable[Presence]) -> None:
    """Kill the processes of actors on this host without Ray's help."""
    here = ray.get_runtime_context().get_node_id()
    for presence in presences:
        # A number can belong to another process by now; that of an actor has Ray's title.
        with suppress(OSError):
            title = Path(f"/proc/{presence.pid}/cmdline").read_bytes()
            if presence.host == here and title.startswith(b"ray::"):
                os.kill(presence.pid, signal.SIGKILL)


def wait_until_ended(
    presences: Iterable[Presence], on_wait: Callable[[], None] = lambda: None
) -> None:
    """Wait up to 5 s until killed processes on this host have ended, and unmap their memory."""
    here = ray.get_runtime_context().get_node_id()
    deadline = time.monotonic() + _END_S
    for presence in presences:
        while presence.host == here and _runs(presence.pid) and time.monotonic() < deadline:
            on_wait()
            time.sleep(_POLL_S)
    unmap_lost_blocks()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
