"""The plan of a cluster: all that decides its roles and its coordinator, before hosts are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from appliance.coordinator.coordinator import Coordinator
from appliance.coordinator.roles import RecoverableRoles, Roles
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.faults.shell import with_faults
from appliance.placement.placer import Placer
from appliance.recovery.policy import Policy
from appliance.recovery.replicas import ReplicatedRoles
from appliance.recovery.supervisor import SupervisedRoles
from appliance.role_group import grouped
from appliance.role_log import coordinated_with_logs, with_logs
from appliance.spec import AutoRestart, ClusterSpec
from waferstream.core.errors import ConfigError
from waferstream.core.events import RecoveryEvent
from waferstream.core.program.program import TensorSpec
from waferstream.core.roles.names import replica_name, server_name
from waferstream.core.roles.role import RoleSpec
from waferstream.core.roles.verification import Verification
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming

_FEWEST_VERIFIED = 2
"""The least number of systems of which one can contradict another."""


@dataclass(frozen=True)
class ClusterPlan:
    """A cluster that holds ``parameters``; picklable, as its coordinator may be built elsewhere.

    Each clock keeps at most ``trace_limit`` activities for a trace. With ``autorestart`` lost
    roles are replaced.
    """

    parameters: tuple[TensorSpec, ...]
    size: ClusterSize
    spec: ClusterSpec
    seed: int
    trace_limit: int = 0
    autorestart: AutoRestart | None = None

    @property
    def verification(self) -> Verification:
        """What systems compute twice.

        Raises:
            ConfigError: There is nobody to compare with.
        """
        fraction, num_csx = self.spec.runtime.verify.fraction, self.size.num_csx
        if fraction and num_csx < _FEWEST_VERIFIED:
            raise ConfigError(
                "verification needs a second system",
                code="verification-of-one-system",
                where="runtime.verify.fraction",
                value=f"{fraction:g} with num_csx {num_csx}",
                rule=f"at least {_FEWEST_VERIFIED} systems; with three, they find who is wrong",
                remedy="raise num_csx, or remove runtime.verify",
            )
        return Verification(fraction, self.seed)

    @property
    def least_num_csx(self) -> int:
        """The systems with which a cluster may go on: all, unless lost ones are left out."""
        if self.autorestart is None:
            return self.size.num_csx
        least = _FEWEST_VERIFIED if self.verification.is_on else 1
        return max(self.autorestart.min_num_csx, least)

    def roles(self, num_csx: int, *, placer: Placer | None = None) -> Sequence[RoleSpec]:
        """Return the specs of all roles for a number of systems, on the hosts of a placer.

        Where these have many more systems than cores, some are groups that share a process.

        Raises:
            ApplianceResourceExhausted: The model does not fit MemoryX.
            ConfigError: A fault is planned for a role that does not exist.
        """
        most = placer.most(self.size.num_csx) if placer else self.size.num_csx
        few = self._elaborated(num_csx, placer)
        whole = few if num_csx == self.size.num_csx else self._elaborated(self.size.num_csx, placer)
        names = [role.name for role in whole]
        if placer:
            few = placer.place(most).with_lanes(few)
        runtime = self.spec.runtime
        faulty = with_faults(few, runtime.faults, runtime.kind == "ray", names)
        specs = with_logs(faulty, runtime.log)
        if placer and self._may_share_processes:
            placement = placer.place(num_csx)
            return grouped(specs, placement.tree, placement.hosts[0].cores)
        return specs

    @property
    def _may_share_processes(self) -> bool:
        """Whether a process may have several roles: on a private Ray, unless one is to be lost."""
        runtime = self.spec.runtime
        has_faults = bool(runtime.faults.stated) or runtime.faults.random is not None
        is_near = runtime.address == "local" and runtime.carrier == "shared_memory"
        is_plain = runtime.device == "cpu" and not runtime.verify.fraction
        return is_near and is_plain and not has_faults

    def coordinator(
        self,
        roles: RecoverableRoles,
        *,
        num_csx: int | None = None,
        placer: Placer | None = None,
    ) -> Coordinator:
        """Build the coordinator in the process where it will run, once its roles have started.

        The emulated clock is that of the whole cluster, also while some systems are left out or the
        hosts take only ``num_csx`` of them.
        """
        size, runtime = self.size, self.spec.runtime
        record = Record(self.trace_limit) if self.trace_limit else None
        timing = ClusterTiming(self.spec.machine, size.num_csx, size.num_servers, record=record)
        controlled: Roles = roles
        policy: Policy | None = None
        take_story: Callable[[], list[RecoveryEvent]] = list
        if self.autorestart is not None:
            servers = range(size.num_servers) if size.has_replicas else ()
            replicas = {server_name(index): replica_name(index) for index in servers}
            limits = self.autorestart.model_copy(update={"min_num_csx": self.least_num_csx})
            policy = Policy(limits, num_csx or size.num_csx, replicas)
            if replicas:
                roles = ReplicatedRoles(roles, replicas)
            rebuilt = partial(self.roles, placer=placer)
            supervised = SupervisedRoles(roles, rebuilt, size.num_servers, policy)
            controlled, take_story = supervised, supervised.story.take
        return Coordinator(
            self.parameters,
            size.num_servers,
            timing,
            coordinated_with_logs(controlled, runtime.log),
            take_story,
            self.verification,
            runtime.straggler_factor,
            has_measured_shares=runtime.shares == "measured",
            failures=policy,
        )

    def _elaborated(self, num_csx: int, placer: Placer | None) -> Sequence[RoleSpec]:
        """Return the roles of so many systems, without what wraps them."""
        workers = min(self.size.num_workers, num_csx)
        size = replace(self.size, num_csx=num_csx, num_workers=workers)
        tree = placer.place(num_csx).tree if placer and num_csx <= placer.most(num_csx) else None
        return elaborate(self.parameters, size, self.spec.machine, self.seed, tree)
