"""The emulated clock charges the sparsity that each step finds, and the changes of masks."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from appliance.coordinator.times import EmulatedClock, MeasuredRecord
from appliance.elaboration.elaborate import ClusterSize, costed_program
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from tests.support.roles.local_machine import (
    BF16,
    MACHINE,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Report
from waferstream.core.sparsity.levels import AnyLevel, Constant, Exp
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.cost import segment_costs
from waferstream.machine.hardware import override
from waferstream.simulator.cluster_timing import ClusterTiming

WIDTH = 256
NAME = "layers.0.weight"
PRUNED = WeightSparsity(
    NAME, "gmp", Exp(init=0.0, gamma=-0.5, final=0.9), update=UpdateSteps(freq=3, start=3)
)


@pytest.fixture(scope="module")
def trained() -> Installation:
    model, (batch,) = Regression(WIDTH), random_batches(1, 2, WIDTH)
    compiled = compile_model(model, batch, 1)
    return installation(compiled, lambda: [batch], sgd(model), ClusterSize(1))


def sparse(trained: Installation, spec: WeightSparsity, earlier: int = 0) -> Installation:
    assert trained.optimizer is not None
    optimizer = replace(trained.optimizer, sparsity=(spec,), earlier_updates=earlier)
    return replace(trained, optimizer=optimizer)


def clock_of(installed: Installation) -> EmulatedClock:
    clock = EmulatedClock(ClusterTiming(MACHINE, 1, 1))
    clock.load(installed)
    return clock


def durations(installed: Installation, steps: range, skipped: int = 0) -> list[int]:
    clock = clock_of(installed)
    return [clock.step(ProgramKind.TRAIN, step, installed, skipped).duration_ps for step in steps]


def expected(installed: Installation, updates: range) -> list[int]:
    """Return the durations of steps that are costed one by one."""
    program = installed.program
    timing = ClusterTiming(MACHINE, 1, 1)
    found = []
    for update in updates:
        sparsity = sparsity_by_optimizer(installed.optimizer, program.parameter, update)
        costed = costed_program(installed, MACHINE).with_sparsity(sparsity, MACHINE)
        timing.load_program(costed)
        found.append(timing.step(ProgramKind.TRAIN, update).duration_ps)
    return found


def test_dense_and_static_weights_take_the_same_picoseconds_as_ever(trained: Installation) -> None:
    """The clock changes nothing where the density of the installed step stays."""
    level: AnyLevel = Constant(value=0.9)
    static = sparse(trained, WeightSparsity(NAME, "static", level))
    for installed in (trained, static):
        timing = ClusterTiming(MACHINE, 1, 1)
        timing.load_program(costed_program(installed, MACHINE))
        plain = [timing.step(ProgramKind.TRAIN, step).duration_ps for step in range(1, 6)]
        assert durations(installed, range(1, 6)) == plain
    assert durations(static, range(1, 6)) != durations(trained, range(1, 6))


def test_every_step_has_the_density_that_it_finds(trained: Installation) -> None:
    """Pruned at updates 3 and 6: steps 4 and 7 are shorter than those before."""
    installed = sparse(trained, PRUNED)
    found = durations(installed, range(1, 13))
    assert found == expected(installed, range(1, 13))
    assert found[4] < found[1]
    assert found[7] < found[4]


def test_clock_charges_no_gradients_of_masked_weights() -> None:
    """Less computing than with all gradients, on 4 x 4 PEs; attributions sum to the step."""
    machine = override(MACHINE, system={"fabric": {"columns": 4, "rows": 4}})
    model, (batch,) = Regression(64, depth=3), random_batches(1, 256, 64)
    compiled = compile_model(model, batch, 1, precision=BF16)
    dense = installation(compiled, lambda: [batch], sgd(model), ClusterSize(1), machine)
    spec = WeightSparsity("layers.1.weight", "static", Constant(value=0.9))
    installed = sparse(dense, spec)
    clock = EmulatedClock(ClusterTiming(machine, 1, 1))
    clock.load(installed)
    found = clock.step(ProgramKind.TRAIN, 1, installed, 0)
    costed = costed_program(installed, machine)
    all_gradients = segment_costs(costed.program, machine.system, costed.densities, {})
    timing = ClusterTiming(machine, 1, 1)
    timing.load_program(replace(costed, costs=all_gradients))
    before = timing.step(ProgramKind.TRAIN, 1)
    assert found.attribution.compute < before.attribution.compute
    assert found.duration_ps < before.duration_ps
    assert found.attribution.total_ps == found.duration_ps


def test_change_of_a_mask_takes_time(trained: Installation) -> None:
    """A selection over more bytes than everything else that MemoryX moves."""
    level: AnyLevel = Constant(value=0.5)
    fixed = WeightSparsity(NAME, "set", level, update=UpdateSteps(steps=(0, 1000)))
    moving = replace(fixed, update=UpdateSteps(freq=1))
    steady, busy = (durations(sparse(trained, spec), range(1, 6)) for spec in (fixed, moving))
    assert all(one < other for one, other in zip(steady, busy, strict=True))


def test_resumed_and_skipped_steps_count_updates(trained: Installation) -> None:
    """The density follows the number of the update, not that of the step."""
    resumed = durations(sparse(trained, PRUNED), range(7, 9))
    assert resumed == expected(sparse(trained, PRUNED), range(7, 9))
    assert durations(sparse(trained, PRUNED), range(9, 11), skipped=2) == resumed
    assert durations(sparse(trained, PRUNED, earlier=6), range(1, 3)) == resumed


def test_evaluation_finds_what_training_has_left(trained: Installation) -> None:
    """And a copy of the clock goes on alike."""
    installed = sparse(trained, PRUNED)
    model, (batch,) = Regression(WIDTH), random_batches(1, 2, WIDTH)
    compiled = compile_model(model, batch, 1, trains=False)
    evaluated = installation(compiled, lambda: [batch], None, ClusterSize(1))
    clock = clock_of(installed)
    clock.load(evaluated)
    dense = clock.step(ProgramKind.EVAL, 1, installed, 0).duration_ps
    for step in range(1, 8):
        clock.step(ProgramKind.TRAIN, step, installed, 0)
    again = copy.deepcopy(clock)
    assert clock.step(ProgramKind.EVAL, 1, installed, 0) == again.step(
        ProgramKind.EVAL, 1, installed, 0
    )
    assert clock.step(ProgramKind.EVAL, 2, installed, 0).duration_ps < dense


def report(role: str, *starts: int) -> Report:
    return Report(role, intervals=[Interval("compute", start, start + 1) for start in starts])


def test_record_keeps_the_first_activities_of_all_roles() -> None:
    """By time, whatever the order of the roles."""
    record = MeasuredRecord(limit=3)
    record.take([report("csx-0", 10, 30), report("csx-1", 20, 40)])
    starts = {role: [each.start_ns for each in of] for role, of in record.all().items()}
    assert starts == {"crd-0": [], "csx-0": [10, 30], "csx-1": [20]}
    assert (record.num_lost, record.num_left) == (1, 0)


def test_copy_of_a_record_keeps_what_there_was() -> None:
    record = MeasuredRecord(limit=10)
    record.take([report("csx-0", 10)])
    copied = record.copy()
    record.add({"csx-0": Interval("save", 20, 30)})
    assert [each.start_ns for each in copied.all()["csx-0"]] == [10]
    assert [each.activity for each in record.all()["csx-0"]] == ["compute", "save"]


def test_record_without_a_limit_keeps_nothing() -> None:
    record = MeasuredRecord(limit=0)
    record.take([report("csx-0", 10)])
    assert (record.by_role, record.num_lost) == ({}, 0)
