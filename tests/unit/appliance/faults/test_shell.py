"""Faults of roles on the local cluster: each ends in its own error, or changes nothing."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from appliance.coordinator.commands import (
    HashWeights,
    LoadWeights,
    ReadWeights,
    RestoreCheckpoint,
    Run,
    SaveCheckpoint,
)
from appliance.coordinator.coordinator import Coordinator
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.faults.plan import Fault, FaultLog, FaultPlan
from appliance.faults.shell import with_faults
from appliance.local import LocalRoles
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    MACHINE,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from waferstream.core.config import validate
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceRuntimeServerError,
    CheckpointError,
    ConfigError,
    WaferStreamError,
)
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.simulator.cluster_timing import ClusterTiming

SIZE = ClusterSize(num_csx=2)
STEPS = 3


@cache
def program() -> tuple[Regression, Installation]:
    """A tiny model and its training program on two systems."""
    model, source = Regression(), partial(random_batches, STEPS, 8)
    compiled = compile_model(model, source()[0], num_micro_batches=4)
    return model, installation(compiled, source, sgd(model), SIZE)


def cluster_with(faults: Sequence[str], folder: Path) -> Coordinator:
    """A local cluster whose roles fail as stated, ready to train."""
    model, installed = program()
    plan = validate(FaultPlan, {"stated": list(faults), "folder": folder}, "test")
    specs = elaborate(installed.program.parameters, SIZE, MACHINE, seed=0)
    roles = LocalRoles(with_faults(specs, plan, has_processes=False))
    coordinator = Coordinator(installed.program.parameters, 1, ClusterTiming(MACHINE, 2, 1), roles)
    coordinator.do(Install(installed))
    coordinator.do(LoadWeights({name: p.detach() for name, p in model.named_parameters()}))
    return coordinator


@cache
def expected() -> str:
    """The weights' digest without faults."""
    coordinator = cluster_with([], Path())
    coordinator.do(Run(ProgramKind.TRAIN, 1, STEPS))
    return coordinator.do(HashWeights())


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ("csx-1@2:exception", ApplianceRuntimeServerError, "role-failed"),
        ("br-0@2/weights:memory", ApplianceRuntimeServerError, "role-failed"),
        ("csx-1@2/gradients:drop", ApplianceCorruptionError, "message-lost"),
        ("br-0@2/weights:drop", ApplianceCorruptionError, "message-lost"),
        ("wrk-0@1:drop", ApplianceCorruptionError, "message-lost"),
    ],
)
def test_fault_ends_a_job_with_an_error_and_once(
    tmp_path: Path, fault: str, kind: type[WaferStreamError], code: str
) -> None:
    """No fault changes a weight silently; the same run afterwards does not fail again."""
    with raises(kind, code):
        cluster_with([fault], tmp_path).do(Run(ProgramKind.TRAIN, 1, STEPS))
    assert len(FaultLog(tmp_path).happened(Fault.model_validate(fault))) == 1
    again = cluster_with([fault], tmp_path)
    again.do(Run(ProgramKind.TRAIN, 1, STEPS))
    assert again.do(HashWeights()) == expected()


def test_late_and_doubled_messages_change_no_bit(tmp_path: Path) -> None:
    """Each happens as often as stated; slow roles change nothing, either."""
    faults = [
        "csx-0@1:slow=0.01*3",
        "br-0@2/gradients:delay=0.01",
        "wrk-0@1:partition=0.01",
        "csx-1@2/weights:duplicate",
        "br-0@2/gradients:duplicate*2",
    ]
    coordinator = cluster_with(faults, tmp_path)
    coordinator.do(Run(ProgramKind.TRAIN, 1, STEPS))
    assert coordinator.do(HashWeights()) == expected()
    log = FaultLog(tmp_path)
    assert [len(log.happened(Fault.model_validate(text))) for text in faults] == [3, 1, 1, 1, 2]


def test_full_disk_is_a_checkpoint_error(tmp_path: Path) -> None:
    """The kernel refuses the write of one checkpoint; weights are as before, the next is whole."""
    coordinator = cluster_with(["wgt-0@1:disk"], tmp_path / "faults")
    coordinator.do(Run(ProgramKind.TRAIN, 1, STEPS))
    with pytest.raises(CheckpointError):
        coordinator.do(SaveCheckpoint(tmp_path / "first.mdl", ["model"], {}))
    assert coordinator.do(HashWeights()) == expected()
    coordinator.do(SaveCheckpoint(tmp_path / "second.mdl", ["model"], {}))
    before = coordinator.do(ReadWeights(sorted(program()[0].state_dict())))
    coordinator.do(RestoreCheckpoint(tmp_path / "second.mdl", ["model"], strict=True))
    after = coordinator.do(ReadWeights(sorted(before)))
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_roles_without_a_fault_have_no_shell(tmp_path: Path) -> None:
    """A plan costs the others nothing, and an empty one costs nobody anything."""
    specs = elaborate(program()[1].program.parameters, SIZE, MACHINE, seed=0)
    assert with_faults(specs, FaultPlan(), has_processes=True) == list(specs)
    plan = validate(FaultPlan, {"stated": ["br-0@1:slow"], "folder": tmp_path}, "test")
    shelled = with_faults(specs, plan, has_processes=True)
    changed = [new.name for new, old in zip(shelled, specs, strict=True) if new is not old]
    assert changed == ["br-0"]


def test_shell_of_a_weight_server_notes_progress(tmp_path: Path) -> None:
    """A benchmark reads there when a step was done."""
    coordinator = cluster_with(["wgt-0@2:slow=0"], tmp_path)
    coordinator.do(Run(ProgramKind.TRAIN, 1, STEPS))
    assert [step for _, step in FaultLog(tmp_path).progress()] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["kill", "hang", "corrupt"])
def test_local_role_has_no_process_to_kill(tmp_path: Path, kind: str) -> None:
    """In one process, killing a role would kill the user's program, and there is no link."""
    with raises(ConfigError, "fault-needs-a-process"):
        cluster_with([f"csx-0@1:{kind}"], tmp_path)


def test_faults_need_a_folder() -> None:
    """Without one, a replaced role would fail again and again."""
    specs = elaborate(program()[1].program.parameters, SIZE, MACHINE, seed=0)
    plan = validate(FaultPlan, {"stated": ["br-0@1:slow"]}, "test")
    with raises(ConfigError, "missing-key"):
        with_faults(specs, plan, has_processes=True)
