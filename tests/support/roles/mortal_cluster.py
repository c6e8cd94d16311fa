"""A supervised cluster in one process whose roles die when a test says so."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from appliance.coordinator.commands import HashWeights, LoadWeights, Run
from appliance.coordinator.coordinator import Coordinator
from appliance.coordinator.roles import RecoverableRoles
from appliance.coordinator.step_results import StepResult
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.local import LocalRoles
from appliance.recovery.policy import Policy
from appliance.recovery.replicas import ReplicatedRoles
from appliance.recovery.supervisor import SupervisedRoles
from appliance.spec import AutoRestart
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from waferstream.core.errors import ApplianceRuntimeServerError, WaferStreamError
from waferstream.core.messages.messages import Envelope
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import (
    Report,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
    Threadless,
    Waiting,
)
from waferstream.machine.hardware import MachineSpec, SwarmXSpec
from waferstream.simulator.cluster_timing import ClusterTiming

MACHINE = MachineSpec(swarmx=SwarmXSpec(fan_out=2))
SIZE = ClusterSize(num_csx=3, num_servers=2, num_workers=2, activation_bytes=1)  # several rounds
CRAMPED = replace(SIZE, num_activation_servers=2, activation_bytes=2_300)
"""With less memory than the activations of a micro-batch of the cramped programs."""
REPLICAS = {"wgt-0": "rpl-0", "wgt-1": "rpl-1"}
LAST_STEP = 6
source = partial(random_batches, 4, 10)


@cache
def programs(*, is_cramped: bool = False) -> tuple[Regression, Installation, Installation]:
    model, size = (Regression(depth=4), CRAMPED) if is_cramped else (Regression(), SIZE)
    train, evaluate = (compile_model(model, source()[0], 5, trains=t) for t in (True, False))
    update = sgd(model, max_gradient_norm=0.5)
    return (
        model,
        installation(train, source, update, size, MACHINE),
        installation(evaluate, source, None, size, MACHINE),
    )


@dataclass
class Faults:
    """What happens at which message: messages are counted over all roles and attempts."""

    at: dict[int, str] = field(default_factory=dict)
    error: type[WaferStreamError] = ApplianceRuntimeServerError
    code: str = "role-died"
    count: int = 0
    hits: int = 0

    def strike(self, role: str) -> None:
        """Let a role die that takes the next message after its fault was due."""
        self.count += 1
        for due in [due for due, victim in self.at.items() if due <= self.count]:
            if role.startswith(self.at[due]):
                del self.at[due]
                self.hits += 1
                raise self.error(f"{role} died", code=self.code, where=role)


@dataclass(frozen=True)
class MortalSpec:
    """How to build a role that may die."""

    spec: RoleSpec
    faults: Faults = field(compare=False)

    @property
    def name(self) -> str:
        return self.spec.name

    def build(self, context: RoleContext) -> Role:
        role: Any = self.spec.build(context)
        begin = role.begin
        role.begin = lambda job: MortalJob(begin(job), self.name, self.faults)
        made: Role = role
        return made


@dataclass
class MortalJob(Threadless):
    """A job during which a role may die."""

    job: RunningJob
    name: str
    faults: Faults

    def start(self) -> Iterator[Envelope]:
        return self.job.start()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        self.faults.strike(self.name)
        return self.job.handle(envelope)

    @property
    def finished(self) -> bool:
        return self.job.finished

    def waits_for(self) -> Waiting:
        return self.job.waits_for()

    def report(self) -> Report:
        return self.job.report()


def cluster(
    faults: Faults,
    restarts: int = 3,
    min_num_csx: int = 1,
    optimizer: OptimizerSpec | None = None,
    *,
    has_replicas: bool = False,
    is_cramped: bool = False,
) -> Coordinator:
    """Return a supervised cluster with both programs and the model's weights."""
    model, *alone = programs(is_cramped=is_cramped)
    train, evaluate = (replace(program, has_replicas=has_replicas) for program in alone)
    parameters = train.program.parameters
    whole = replace(CRAMPED if is_cramped else SIZE, has_replicas=has_replicas)

    def specs(num_csx: int) -> list[RoleSpec]:
        size = replace(whole, num_csx=num_csx, num_workers=min(2, num_csx))
        return [MortalSpec(spec, faults) for spec in elaborate(parameters, size, MACHINE, 0)]

    limits = AutoRestart(max_num_restarts=restarts, min_num_csx=min_num_csx)
    replicas = REPLICAS if has_replicas else {}
    policy = Policy(limits, SIZE.num_csx, replicas)
    inner: RecoverableRoles = LocalRoles(specs(SIZE.num_csx))
    if has_replicas:
        inner = ReplicatedRoles(inner, replicas)
    roles = SupervisedRoles(inner, specs, SIZE.num_servers, policy)
    timing = ClusterTiming(MACHINE, SIZE.num_csx, SIZE.num_servers)
    coordinator = Coordinator(parameters, SIZE.num_servers, timing, roles, roles.story.take)
    coordinator.do(Install(train if optimizer is None else replace(train, optimizer=optimizer)))
    coordinator.do(Install(evaluate))
    coordinator.do(LoadWeights({name: p.detach() for name, p in model.named_parameters()}))
    return coordinator


def replicated_specs() -> list[RoleSpec]:
    size = replace(SIZE, has_replicas=True)
    return list(elaborate(programs()[1].program.parameters, size, MACHINE, 0))


def jobs(running: Coordinator) -> list[StepResult]:
    """Train, evaluate, train."""
    return [
        *running.do(Run(ProgramKind.TRAIN, 1, 4)),
        *running.do(Run(ProgramKind.EVAL, 1, 3)),
        *running.do(Run(ProgramKind.TRAIN, 5, LAST_STEP)),
    ]


@cache
def expected(*, is_cramped: bool = False) -> tuple[list[StepResult], str, int]:
    faults = Faults()
    running = cluster(faults, is_cramped=is_cramped)
    return jobs(running), running.do(HashWeights()), faults.count


def local_roles(running: Coordinator) -> LocalRoles:
    """Return the roles under all shells of recovery."""
    roles: Any = running._roles
    while not isinstance(roles, LocalRoles):
        roles = roles._roles
    return roles
