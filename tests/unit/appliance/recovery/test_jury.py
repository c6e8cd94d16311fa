"""Systems that compute wrong bits: found by another system, named, left out; the answer stays."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import HashWeights, LoadWeights, Run
from appliance.coordinator.step_results import StepResult
from appliance.elaboration.elaborate import ClusterSize
from appliance.plan import ClusterPlan
from appliance.recovery.supervisor import Jury
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from appliance.starting import start_cluster
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
from waferstream.core.errors import ApplianceError, ConfigError
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.verification import Ballot, Dispute, DisputedBitsError, Unit

STEPS = 6
ONE_RESTART = AutoRestart(max_num_restarts=1)
source = partial(random_batches, STEPS, 14)


@cache
def program(num_csx: int) -> tuple[Regression, Installation]:
    """A model and its training program: seven micro-batches, clipped gradients."""
    model = Regression()
    compiled = compile_model(model, source()[0], num_micro_batches=7)
    update, size = sgd(model, max_gradient_norm=0.5), ClusterSize(num_csx, num_servers=2)
    return model, installation(compiled, source, update, size)


@contextmanager
def cluster_with(
    faults: Sequence[str],
    folder: Path,
    num_csx: int = 3,
    fraction: float = 1.0,
    autorestart: AutoRestart | None = ONE_RESTART,
) -> Iterator[Cluster]:
    """Yield a verified cluster whose systems compute wrong bits as stated."""
    model, installed = program(num_csx)
    runtime: dict[str, Any] = {
        "kind": "local",
        "verify": {"fraction": fraction},
        "faults": {"stated": list(faults), "folder": folder},
    }
    spec = ClusterSpec(machine=MACHINE, runtime=validate(RuntimeSpec, runtime, "test"))
    size = ClusterSize(num_csx, num_servers=2, num_workers=2)
    parameters = installed.program.parameters
    running = start_cluster(ClusterPlan(parameters, size, spec, 0, autorestart=autorestart))
    try:
        running.do(Install(installed))
        running.do(LoadWeights({name: p.detach() for name, p in model.named_parameters()}))
        yield running
    finally:
        running.shutdown()


@cache
def expected(num_csx: int) -> tuple[list[StepResult], str]:
    """Results and digest of a run that verifies nothing and meets no fault."""
    with cluster_with([], Path("unused"), num_csx, fraction=0.0) as running:
        return running.do(Run(ProgramKind.TRAIN, 1, STEPS)), running.do(HashWeights())


def results_of(running: Cluster) -> tuple[list[StepResult], str]:
    """Train in two jobs."""
    results = [
        *running.do(Run(ProgramKind.TRAIN, 1, 4)),
        *running.do(Run(ProgramKind.TRAIN, 5, STEPS)),
    ]
    return results, running.do(HashWeights())


def story_of(faults: Sequence[str], num_csx: int, folder: Path) -> list[str]:
    """Run with faults, compare with the expected answer, and return what recovery has told."""
    with (
        cluster_with(faults, folder, num_csx) as running,
        lines_of("waferstream") as lines,
    ):
        assert results_of(running) == expected(num_csx)
    return [line.removeprefix("Recovery: ") for line in lines]


@contextmanager
def lines_of(name: str) -> Iterator[list[str]]:
    """Yield the lines that a logger gets inside the block."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize("fraction", [0.3, 1.0])
@pytest.mark.parametrize("is_protected", [False, True])
def test_verification_changes_no_result(
    fraction: float, is_protected: bool, tmp_path: Path
) -> None:
    """Weights, losses, norms and emulated times are those of a run that verifies nothing."""
    limits = ONE_RESTART if is_protected else None
    with cluster_with([], tmp_path, fraction=fraction, autorestart=limits) as running:
        assert results_of(running) == expected(3)


@pytest.mark.parametrize(
    ("fault", "num_csx"),
    [
        ("csx-1@3:wrong_bits", 3),
        ("csx-2@3/inputs:wrong_bits", 4),
        ("csx-0@4:wrong_bits", 3),
        ("csx-1@6:wrong_bits", 2),
        ("csx-2@1:wrong_bits*1000", 3),
    ],
)
def test_system_with_wrong_bits_is_left_out(fault: str, num_csx: int, tmp_path: Path) -> None:
    """Once or always, in any step, the last one of a job, too: it is found and named."""
    story = story_of([fault], num_csx, tmp_path)
    system = fault.partition("@")[0]
    action = "shrink" if num_csx > 2 else "replace"
    (decision,) = [line for line in story if line.startswith(f"{system} computed wrong bits")]
    assert f": {action}," in decision


def test_two_systems_that_differ_again_are_both_replaced() -> None:
    """Nobody can tell who is right; another process may be."""
    unit, ballots = Unit(3, 0, 1), (Ballot("csx-1", b"a"), Ballot("csx-0", b"b"))
    jury = Jury()
    assert jury.judge(DisputedBitsError(Dispute(unit, ballots))) == {}
    assert jury.dispute == Dispute(unit, ballots)
    lost = jury.judge(DisputedBitsError(Dispute(unit, ballots * 2)))
    assert {system: error.code for system, error in lost.items()} == {
        "csx-0": "bits-undecided",
        "csx-1": "bits-undecided",
    }
    assert jury.dispute is None


def test_wrong_bits_end_a_run_without_recovery(tmp_path: Path) -> None:
    """The error names both systems and the step; nothing was updated after it."""
    with (
        cluster_with(["csx-1@3:wrong_bits"], tmp_path, autorestart=None) as running,
        raises(ApplianceError, "bits-disputed") as caught,
    ):
        running.do(Run(ProgramKind.TRAIN, 1, STEPS))
    assert "csx-1" in caught.value.what
    assert str(caught.value.where).startswith("step 3, round ")


def test_wrong_bits_change_weights_where_nothing_is_verified(tmp_path: Path) -> None:
    """The fault is real: without verification it changes the answer."""
    fault = "csx-1@3:wrong_bits"
    with cluster_with([fault], tmp_path, fraction=0.0, autorestart=None) as running:
        running.do(Run(ProgramKind.TRAIN, 1, STEPS))
        assert running.do(HashWeights()) != expected(3)[1]


def test_one_system_cannot_be_verified(tmp_path: Path) -> None:
    with (
        raises(ConfigError, "verification-of-one-system"),
        cluster_with([], tmp_path, num_csx=1),
    ):
        pass
