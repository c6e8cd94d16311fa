"""Start a cluster, in this process or on Ray, and start it again if its processes are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.roles import RecoverableRoles
from appliance.local import LocalRoles
from appliance.placement.cores import cores_of_host
from appliance.placement.placer import Placement
from appliance.plan import ClusterPlan
from appliance.recovery.replay import ReplayingCluster
from appliance.recovery.restarts import Starter
from appliance.spec import RuntimeSpec
from csnode.inference.wafer import WaferSpec


def start_cluster(
    plan: ClusterPlan, check: Callable[[Placement], None] = lambda _: None
) -> Cluster:
    """Start a cluster, whose weights are all zero at first.

    With ``plan.autorestart`` the cluster starts again when it loses processes that it cannot
    replace. ``check`` looks at the placement on hosts before a role starts there, and may raise.

    Raises:
        ApplianceResourceExhausted: The model does not fit MemoryX.
        ClusterJobInitError: The roles do not start.
    """
    plan.roles(plan.size.num_csx)  # errors come before anything starts
    starter: Starter
    if plan.spec.runtime.kind == "local":
        starter = LocalStarter(plan)
    else:
        from appliance.ray.starter import RayStarter  # noqa: PLC0415  (takes half a second)

        starter = RayStarter(plan, check)
    if plan.autorestart is None:
        return starter.start()
    return ReplayingCluster(starter, plan.autorestart.max_num_restarts)


def start_wafers(
    specs: Sequence[WaferSpec], runtime: RuntimeSpec, session: str
) -> RecoverableRoles:
    """Start the wafers of a service, in this process or on Ray.

    Raises:
        ClusterJobInitError: They do not start.
    """
    if runtime.kind == "local":
        return LocalRoles(specs)
    from appliance.ray.roles import RecoverableRayRoles  # noqa: PLC0415  (takes half a second)

    return RecoverableRayRoles(specs, runtime, session)


@dataclass(frozen=True)
class LocalStarter:
    """Starts clusters in this process."""

    plan: ClusterPlan

    def start(self) -> Cluster:
        """Start a cluster."""
        roles = LocalRoles(self.plan.roles(self.plan.size.num_csx))
        coordinator = self.plan.coordinator(roles)
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
