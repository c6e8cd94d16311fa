"""Start a cluster: elaborate its roles, and start them in this process or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.coordinator import Coordinator
from appliance.coordinator.roles import Roles
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.faults.shell import with_faults
from appliance.local import LocalRoles
from appliance.placement.cores import cores_of_host
from appliance.placement.placer import Placement, Placer
from appliance.recovery.policy import Policy
from appliance.recovery.replay import ReplayingCluster
from appliance.recovery.replicas import ReplicatedRoles
from appliance.recovery.restarts import Starter
from appliance.recovery.roles import RecoverableRoles
from appliance.recovery.supervisor import Elaborate, SupervisedRoles
from appliance.role_log import coordinated_with_logs, with_logs
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from simulator.cluster_timing import ClusterTiming
from timing.record import Record
from wsc.core.errors import ConfigError
from wsc.core.messages.messages import replica_name, server_name
from wsc.core.program.program import TensorSpec
from wsc.core.roles.role import RoleSpec
from wsc.core.roles.verification import Verification

_FEWEST_VERIFIED = 2
"""The least number of systems of which one can contradict another."""


def start_cluster(
    parameters: Sequence[TensorSpec],
    size: ClusterSize,
    spec: ClusterSpec,
    seed: int,
    trace_limit: int = 0,
    autorestart: AutoRestart | None = None,
    check: Callable[[Placement], None] = lambda _: None,
) -> Cluster:
    """Start a cluster that holds ``parameters``, all zero at first.

    Each clock keeps at most ``trace_limit`` activities for a trace. With ``autorestart`` lost
    roles are replaced, and the cluster starts again when it loses processes that it cannot replace.
    ``check`` looks at the placement on hosts before a role starts there, and may raise.

    Raises:
        ApplianceResourceExhausted: The model does not fit MemoryX.
        ClusterJobInitError: The roles do not start.
    """
    build = partial(_specs, tuple(parameters), size, spec, seed)
    verification = _verification(spec.runtime.verify.fraction, seed, size.num_csx)
    make = partial(_make_coordinator, tuple(parameters), size, spec, trace_limit, verification)
    if autorestart is not None:
        least = max(autorestart.min_num_csx, _FEWEST_VERIFIED if verification.is_on else 1)
        autorestart = autorestart.model_copy(update={"min_num_csx": least})
        make = partial(make, autorestart=autorestart)
    starter: Starter
    if spec.runtime.kind == "local":
        starter = LocalStarter(partial(make, build=build), build(size.num_csx))
    else:
        from appliance.ray.starter import RayStarter  # noqa: PLC0415  (takes half a second)

        fan_out = spec.machine.swarmx.fan_out
        min_num_csx = None if autorestart is None else autorestart.min_num_csx
        build(size.num_csx)  # errors come before Ray starts
        starter = RayStarter(
            make,
            build,
            size.num_csx,
            spec.runtime,
            fan_out,
            min_num_csx=min_num_csx,
            check=check,
        )
    if autorestart is None:
        return starter.start()
    return ReplayingCluster(starter, autorestart.max_num_restarts)


@dataclass(frozen=True)
class LocalStarter:
    """Starts clusters in this process."""

    make: Callable[[RecoverableRoles], Coordinator]
    roles: Sequence[RoleSpec]

    def start(self) -> Cluster:
        """Start a cluster."""
        roles = LocalRoles(self.roles)
        coordinator = self.make(roles)
        coordinator.look_at_steps = lambda: roles.newest_step
        return coordinator

    def has_better_hosts(self) -> bool:
        """Return False: there is this process only."""
        return False

    def close(self) -> None:
        """Do nothing: a local cluster shares nothing with another."""


def lanes_on(runtime: RuntimeSpec, num_csx: int) -> int:
    """Return how many micro-batches a node runs side by side so that all host cores are busy."""
    if runtime.kind == "local" or runtime.device != "cpu":
        return 1
    return max(1, cores_of_host(runtime.cores) // num_csx)


def _specs(
    parameters: Sequence[TensorSpec],
    size: ClusterSize,
    spec: ClusterSpec,
    seed: int,
    num_csx: int,
    *,
    placer: Placer | None = None,
) -> Sequence[RoleSpec]:
    """Return the specs of all roles for a number of systems, on the hosts of a placer."""
    fitted = replace(size, num_csx=num_csx, num_workers=min(size.num_workers, num_csx))
    most = placer.most(size.num_csx) if placer else size.num_csx
    trees = {n: placer.place(n).tree for n in (num_csx, most)} if placer else {}
    few, whole = (
        elaborate(parameters, of, spec.machine, seed, trees.get(of.num_csx))
        for of in (fitted, size)
    )
    has_processes, names = spec.runtime.kind == "ray", [role.name for role in whole]
    if placer:
        few = placer.place(most).with_lanes(few)
    faulty = with_faults(few, spec.runtime.faults, has_processes, names)
    return with_logs(faulty, spec.runtime.log)


def _make_coordinator(
    parameters: tuple[TensorSpec, ...],
    size: ClusterSize,
    spec: ClusterSpec,
    trace_limit: int,
    verification: Verification,
    roles: RecoverableRoles,
    *,
    build: Elaborate | None = None,
    autorestart: AutoRestart | None = None,
    num_csx: int | None = None,
) -> Coordinator:
    """Build the coordinator in the process where it will run, once its roles have started.

    The emulated clock is that of the whole cluster, also while some systems are left out or the
    hosts take only ``num_csx`` of them.
    """
    record = Record(trace_limit) if trace_limit else None
    timing = ClusterTiming(spec.machine, size.num_csx, size.num_servers, record=record)
    controlled: Roles = roles
    policy: Policy | None = None
    take_story: Callable[[], list[str]] = list
    if build is not None and autorestart is not None:
        servers = range(size.num_servers) if size.has_replicas else ()
        replicas = {server_name(index): replica_name(index) for index in servers}
        policy = Policy(autorestart, num_csx or size.num_csx, replicas)
        if replicas:
            roles = ReplicatedRoles(roles, replicas)
        supervised = SupervisedRoles(roles, build, size.num_servers, policy)
        controlled, take_story = supervised, supervised.story.take
    return Coordinator(
        parameters,
        size.num_servers,
        timing,
        coordinated_with_logs(controlled, spec.runtime.log),
        take_story,
        verification,
        spec.runtime.straggler_factor,
        has_measured_shares=spec.runtime.shares == "measured",
        failures=policy,
    )


def _verification(fraction: float, seed: int, num_csx: int) -> Verification:
    """Return the verification of a cluster of ``num_csx`` systems.

    Raises:
        ConfigError: There is nobody to compare with.
    """
    if fraction and num_csx < _FEWEST_VERIFIED:
        raise ConfigError(
            "verification needs a second system",
            code="verification-of-one-system",
            where="runtime.verify.fraction",
            value=f"{fraction:g} with num_csx {num_csx}",
            rule=f"at least {_FEWEST_VERIFIED} systems; with three, they find who is wrong",
            remedy="raise num_csx, or remove runtime.verify",
        )
    return Verification(fraction, seed)
