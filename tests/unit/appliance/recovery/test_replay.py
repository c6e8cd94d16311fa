"""A cluster that starts again: values, clock and checkpoints are those of a run without a fault."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import HashWeights, LoadWeights, Run, SaveCheckpoint
from appliance.coordinator.coordinator import Coordinator
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.local import LocalRoles
from appliance.recovery.policy import Policy
from appliance.recovery.replay import ReplayingCluster
from appliance.recovery.supervisor import SupervisedRoles
from appliance.spec import AutoRestart
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    MACHINE,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Command, Job, Report
from waferstream.simulator.cluster_timing import ClusterTiming

SIZE = ClusterSize(2, num_servers=2)
source = partial(random_batches, 3, 10)


@cache
def installations() -> tuple[Installation, Installation]:
    model = Regression()
    train, evaluate = (compile_model(model, source()[0], 5, trains=t) for t in (True, False))
    return (
        installation(train, source, sgd(model), SIZE),
        installation(evaluate, source, None, SIZE),
    )


def weights() -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in Regression().named_parameters()}


class LosingRoles(LocalRoles):
    """Roles whose jobs with certain numbers end with a lost process, after their last update."""

    starter: "Losing"

    def run(self, job: Job) -> list[Report]:
        if self.starter.is_interrupted:
            raise KeyboardInterrupt
        reports = super().run(job)
        self.starter.jobs += 1
        if self.starter.jobs in self.starter.lost:
            raise ApplianceRuntimeServerError(
                "crd-0 died",
                code="host-lost"
                if self.starter.jobs in self.starter.lost_hosts
                else self.starter.code,
                where=self.starter.where or f"job {self.starter.jobs}",
            )
        return reports


@dataclass
class Losing:
    """Starts clusters that are lost in the jobs with these numbers, counted over all of them.

    With ``max_num_restarts`` they recover inside, but for the loss of a host.
    """

    lost: set[int] = field(default_factory=set)
    lost_hosts: frozenset[int] = frozenset()
    max_num_restarts: int | None = None
    code: str = "role-died"
    where: str = ""
    is_interrupted: bool = False
    jobs: int = 0
    started: int = 0
    closed: int = 0
    outgrown: set[int] = field(default_factory=set)  # clusters to which hosts join, from 1

    def start(self) -> Cluster:
        self.started += 1
        parameters = installations()[0].program.parameters
        specs = elaborate(parameters, SIZE, MACHINE, 0)
        roles = LosingRoles(specs)
        roles.starter = self
        timing = ClusterTiming(MACHINE, 2, 2)
        if self.max_num_restarts is None:
            return Coordinator(parameters, 2, timing, roles)
        policy = Policy(AutoRestart(max_num_restarts=self.max_num_restarts), 2)
        supervised = SupervisedRoles(roles, lambda _: specs, 2, policy)
        story = supervised.story.take
        return Coordinator(parameters, 2, timing, supervised, story, failures=policy)

    def has_better_hosts(self) -> bool:
        return self.started in self.outgrown

    def close(self) -> None:
        self.closed += 1


def train(cluster: Cluster, folder: Path) -> Iterator[Any]:
    """A user's program: yields all that it sees."""
    training, evaluation = installations()
    cluster.do(Install(training))
    cluster.do(LoadWeights(weights()))
    yield cluster.do(Run(ProgramKind.TRAIN, 1, 2))
    cluster.do(Install(evaluation))
    yield cluster.do(Run(ProgramKind.EVAL, 1, 1))
    cluster.do(SaveCheckpoint(folder / ".a.partial", tuple(CLUSTER_STATES), {"global_step": 2}))
    (folder / ".a.partial").rename(folder / "a")
    yield cluster.do(Run(ProgramKind.TRAIN, 3, 3))
    (folder / "a").unlink()  # as of a folder that keeps few checkpoints
    cluster.do(LoadWeights({"layers.0.bias": torch.ones(4)}))
    yield cluster.do(Run(ProgramKind.TRAIN, 4, 5))
    yield cluster.do(HashWeights())


def outcome(losing: Losing, folder: Path, max_restarts: int = 3) -> list[Any]:
    cluster = ReplayingCluster(losing, max_restarts)
    try:
        return list(train(cluster, folder))
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return list(train(Losing().start(), tmp_path_factory.mktemp("expected")))


@settings(max_examples=15)
@given(lost=st.sets(st.integers(1, 9), max_size=3))
def test_lost_clusters_change_no_result(
    expected: list[Any], tmp_path_factory: pytest.TempPathFactory, lost: set[int]
) -> None:
    """Losses, weights and emulated times are equal, whenever processes are lost; no step is lost,
    none reaches the program twice."""
    losing = Losing(lost)
    assert outcome(losing, tmp_path_factory.mktemp("run")) == expected
    assert losing.started == 1 + len([job for job in lost if job <= losing.jobs])
    assert losing.closed == 1


def test_restarts_start_from_the_newest_checkpoint(tmp_path: Path, expected: list[Any]) -> None:
    """After a checkpoint of step 2, a loss in step 5 repeats one job of step 3, though the file
    has been renamed and removed since."""
    losing = Losing({4})
    assert outcome(losing, tmp_path) == expected
    assert losing.jobs == 6


def test_checkpoint_moves_the_run_to_better_hosts(tmp_path: Path, expected: list[Any]) -> None:
    """Another cluster goes on from the checkpoint, without a restart that counts."""
    losing = Losing(outgrown={1})
    assert outcome(losing, tmp_path, max_restarts=0) == expected
    assert losing.started == 2


def test_too_many_restarts_are_refused(tmp_path: Path) -> None:
    """The error says so, names the last failure, and leaves nothing open."""
    losing = Losing(set(range(1, 9)))
    with raises(ApplianceRuntimeServerError, "restarts-exhausted") as error:
        outcome(losing, tmp_path, max_restarts=2)
    assert losing.started == 3
    assert losing.closed == 1
    assert error.value.where == "job 3"


def test_a_checkpoint_sets_the_count_of_restarts_back(tmp_path: Path, expected: list[Any]) -> None:
    losing = Losing({1, 5})
    assert outcome(losing, tmp_path, max_restarts=1) == expected


@pytest.mark.parametrize(("max_restarts", "is_enough"), [(3, False), (4, True)])
def test_failures_in_a_cluster_and_of_it_are_one_count(
    tmp_path: Path, expected: list[Any], max_restarts: int, is_enough: bool
) -> None:
    """The job of step 3 fails twice, then with its host, and once more on the next cluster."""
    losing = Losing({3, 4, 5, 6}, frozenset({5}), max_num_restarts=max_restarts)
    if is_enough:
        assert outcome(losing, tmp_path, max_restarts) == expected
        assert losing.started == 2
        return
    with raises(ApplianceRuntimeServerError, "restarts-exhausted") as error:
        outcome(losing, tmp_path, max_restarts)
    assert error.value.where == "job 6"


def test_a_checkpoint_sets_the_common_count_back(tmp_path: Path, expected: list[Any]) -> None:
    """Without it, a cluster that was lost in step 2 leaves no failure for step 3."""
    losing = Losing({1, 4}, frozenset({1}), max_num_restarts=1)
    assert outcome(losing, tmp_path, max_restarts=1) == expected
    assert losing.started == 2


@pytest.mark.parametrize("code", ["role-failed", "restarts-exhausted"])
def test_failures_that_end_the_run_are_not_repeated(tmp_path: Path, code: str) -> None:
    """Those of the user's code, and those after too many recoveries inside the cluster."""
    losing = Losing({1}, code=code)
    with raises(ApplianceRuntimeServerError, code):
        outcome(losing, tmp_path)
    assert losing.started == 1


def test_coordinator_that_failed_is_lost(tmp_path: Path, expected: list[Any]) -> None:
    """It runs no code of the user; a failure that comes again and again ends the run."""
    losing = Losing({2, 4}, code="role-failed", where="crd-0, log: a file")
    assert outcome(losing, tmp_path) == expected
    again = Losing(set(range(1, 9)), code="role-failed", where="crd-0, log: a file")
    with raises(ApplianceRuntimeServerError, "restarts-exhausted"):
        outcome(again, tmp_path, max_restarts=2)
    assert again.started == 3


def test_interrupt_asks_nothing_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that hangs would never answer, and the program would not end."""
    given: list[Command[Any]] = []
    do = Coordinator.do

    def note(coordinator: Coordinator, command: Command[Any]) -> Any:
        given.append(command)
        return do(coordinator, command)

    monkeypatch.setattr(Coordinator, "do", note)
    with pytest.raises(KeyboardInterrupt):
        outcome(Losing(is_interrupted=True), tmp_path)
    assert isinstance(given[-1], Run)
