"""A running cluster as its user sees it: one object, whatever it runs on.

``start_cluster`` elaborates the roles and brings them up in this process or on Ray. Both kinds
are driven by the same Coordinator; on Ray it is an actor of its own and calls go through a proxy.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.coordinator import Coordinator
from appliance.cores import cores_of_host
from appliance.elaborate import ClusterSize, elaborate
from appliance.local import LocalRoles
from appliance.roles import Roles
from appliance.spec import ClusterSpec, RuntimeSpec
from simulator.cluster_timing import ClusterTiming
from timing.hardware import MachineSpec
from wsc.core.errors import ApplianceRuntimeServerError
from wsc.core.program import TensorSpec
from wsc.core.role import RoleSpec


@dataclass(frozen=True)
class CoordinatorFactory:
    """How to build the coordinator where it will run, once its roles are up."""

    parameters: tuple[TensorSpec, ...]
    size: ClusterSize
    machine: MachineSpec
    record: bool

    def __call__(self, roles: Roles) -> Coordinator:
        size = self.size
        clock = ClusterTiming(self.machine, size.num_csx, size.num_servers, record=self.record)
        return Coordinator(self.parameters, size.num_servers, clock, roles)


class Cluster:
    """A handle on a running cluster; ``shutdown`` ends every process it started."""

    def __init__(self, hosted: Any) -> None:
        self._hosted: Any | None = hosted

    def invoke(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the coordinator and wait for its result.

        ApplianceRuntimeServerError after ``shutdown``.
        """
        if self._hosted is None:
            raise ApplianceRuntimeServerError(
                "the cluster has ended",
                rule="a job that fails or is interrupted ends it, for it stops within a step",
                remedy="make a new backend and go on from a checkpoint",
            )
        return self._hosted.invoke(method, *args, **kwargs)

    def shutdown(self) -> None:
        """End the cluster. Idempotent; called on success, failure and Ctrl-C alike."""
        if self._hosted is not None:
            self._hosted.shutdown()
            self._hosted = None


class _HostedHere:
    """A coordinator in this process."""

    def __init__(self, factory: CoordinatorFactory, specs: Sequence[RoleSpec]) -> None:
        self._roles = LocalRoles(specs)
        self._coordinator = factory(self._roles)

    def invoke(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._coordinator, method)(*args, **kwargs)

    def shutdown(self) -> None:
        self._roles.shutdown()


def start_cluster(
    parameters: Sequence[TensorSpec],
    size: ClusterSize,
    spec: ClusterSpec,
    seed: int,
    record: bool = False,
) -> Cluster:
    """Bring up a cluster that holds ``parameters`` (all zero at first).

    With ``record`` the emulated clock keeps every activity for a trace. Raises
    ApplianceResourceExhausted if the model does not fit, ClusterJobInitError if the roles do not
    come up.
    """
    roles = elaborate(parameters, size, spec.machine, seed)
    factory = CoordinatorFactory(tuple(parameters), size, spec.machine, record)
    if spec.runtime.kind == "local":
        return Cluster(_HostedHere(factory, roles))
    from appliance.ray.coordinator import RayHosted  # noqa: PLC0415  (half a second)

    session = f"waferstream-{uuid.uuid4().hex[:8]}"
    return Cluster(RayHosted(factory, roles, spec.runtime, session))


def lanes_on(runtime: RuntimeSpec, num_csx: int) -> int:
    """Micro-batches side by side on a node, such that nodes and lanes fill a host's cores."""
    if runtime.kind == "local":
        return 1
    return max(1, cores_of_host(runtime.cores) // num_csx)
