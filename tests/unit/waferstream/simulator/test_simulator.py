"""Time without values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memoryx.optim.cost import NO_UPDATE, UpdateCost, update_cost
from tests.support.programs.plain_steps import backward_step, mean_square
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import ScalableProgram, capture_both
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import Loading, ProgramKind
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.units import PS_PER_S
from waferstream.machine.attribution import StepTiming
from waferstream.machine.hardware import MachineSpec
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulator.cluster_timing import ClusterTiming
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.simulator import JITTERED_STEPS, Simulator

MACHINE = MachineSpec()
SLOW_MEMORY = MachineSpec.model_validate({"memoryx": {"memory_bandwidth_bytes_per_s": 10**9}})
ADAMW = UpdateCost(state_bytes=8, flops=15)


def compiled_at(size: int, num_micro_batches: int = 1) -> Compiled:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    step = backward_step(model, mean_square)
    request = CompileRequest(StreamPrecision(), size, num_micro_batches, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 64))], request)[0]


@pytest.fixture(scope="module")
def program() -> ScalableProgram:
    return capture_both(compiled_at)


@pytest.mark.parametrize("machine", [MACHINE, SLOW_MEMORY], ids=["fast", "slow memory"])
@pytest.mark.parametrize(("micro_batch_size", "num_csx"), [(1, 1), (3, 2), (8, 3), (8, 12)])
def test_it_agrees_with_a_functional_run_of_the_same_schedule(
    program: ScalableProgram, micro_batch_size: int, num_csx: int, machine: MachineSpec
) -> None:
    """The timing model that a cluster drives gives the same step to the picosecond."""
    batch_size = 24 * micro_batch_size
    simulator = Simulator(program, machine, num_servers=2, update=ADAMW)
    prediction = simulator.predict(batch_size, micro_batch_size, num_csx)

    driven = ClusterTiming(machine, num_csx, 2)
    captured = compiled_at(micro_batch_size, 24).program
    driven.load_program(
        CostedProgram.of(captured, plan_streams(captured, 2), driven.machine, update=ADAMW)
    )
    steps = [driven.step(ProgramKind.TRAIN, step) for step in range(1, prediction.timing.step + 1)]
    assert steps[-1] == prediction.timing


def scores_at(size: int) -> Compiled:
    """Compile a step whose vectors are laid out for products: those of one sample as they are."""

    def loss(vectors: torch.Tensor) -> torch.Tensor:
        heads = vectors.unflatten(-1, (2, 32)).transpose(1, 2)
        return mean_square(heads @ heads.transpose(2, 3))

    model = nn.Linear(64, 64)
    step = backward_step(model, loss)
    request = CompileRequest(StreamPrecision(), size, 24, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 5, 64))], request)[0]


def test_a_single_sample_takes_as_long_as_captured_alone() -> None:
    """It is not copied, as more samples are; those follow from two captures."""
    program, alone = capture_both(scores_at), scores_at(1).program
    simulator = Simulator(program, MACHINE, one_group=alone)
    for size, captured in ((1, alone), (3, scores_at(3).program)):
        timing = simulator.predict(24 * size, size, 2).timing
        driven = ClusterTiming(MACHINE, 2, 1)
        driven.load_program(CostedProgram.of(captured, plan_streams(captured, 1), MACHINE))
        steps = [driven.step(ProgramKind.TRAIN, step) for step in range(1, timing.step + 1)]
        assert steps[-1] == timing
    with_copies = Simulator(program, MACHINE).predict(24, 1, 2).timing
    assert with_copies.duration_ps > simulator.predict(24, 1, 2).timing.duration_ps


def test_a_step_may_wait_for_its_loader(program: ScalableProgram) -> None:
    """Simulated and driven alike; half the processes load for twice as long."""
    machine = MachineSpec.model_validate({"input": {"csv": {"sample_ps": PS_PER_S // 10}}})
    steps_ps = []
    for num_workers in (4, 2):
        loading = Loading("csv", num_workers)
        timing = Simulator(program, machine, loading=loading).predict(192, 8, 3).timing
        driven = ClusterTiming(machine, 3, 1)
        captured = compiled_at(8, 24).program
        driven.load_program(
            CostedProgram.of(captured, plan_streams(captured, 1), driven.machine, loading=loading)
        )
        steps = [driven.step(ProgramKind.TRAIN, step) for step in range(1, timing.step + 1)]
        assert steps[-1] == timing
        assert timing.attribution.shares()["input"] > 0.5
        steps_ps.append(timing.duration_ps)
    assert steps_ps[1] == pytest.approx(2 * steps_ps[0], rel=0.01)


def test_a_prediction_counts_the_arithmetic_of_the_whole_step(program: ScalableProgram) -> None:
    """Three matrix products of each layer but the first, which needs no input gradient."""
    prediction = Simulator(program, MACHINE).predict(40, 4, 2)
    assert prediction.arithmetic_flops == 5 * 2 * 64 * 128 * 40
    assert prediction.flops_per_s == pytest.approx(
        prediction.arithmetic_flops / 40 * prediction.samples_per_s
    )


def test_sizes_do_not_disturb_each_other(program: ScalableProgram) -> None:
    """A curve gives what single predictions give, in any order."""
    sizes = [(64, 4, 16), (64, 4, 1), (64, 8, 4), (128, 4, 5), (64, 4, 3)]
    shared = Simulator(program, MACHINE)
    assert [shared.predict(*size) for size in sizes] == [
        Simulator(program, MACHINE).predict(*size) for size in sizes
    ]


def test_every_segment_has_its_no_stall_condition(program: ScalableProgram) -> None:
    """In execution order, weights down and gradients up."""
    checks = Simulator(program, MACHINE).streams(16, 4)
    assert [(check.layer, check.phase) for check in checks] == [
        (segment.layer, segment.phase) for segment in compiled_at(4).program.segments
    ]
    assert sum(check.gradient_bytes for check in checks) == 4 * (2 * 64 * 128 + 128 + 64)


def test_a_last_micro_batch_may_be_smaller(program: ScalableProgram) -> None:
    """It takes the time of a full one, and the rate counts the samples that there are."""
    simulator = Simulator(program, MACHINE)
    uneven, full = simulator.predict(43, 4, 3), simulator.predict(48, 4, 3)
    assert uneven.timing.duration_ps == full.timing.duration_ps
    assert uneven.samples_per_s == pytest.approx(full.samples_per_s * 43 / 48)
    assert uneven.arithmetic_flops * 48 == full.arithmetic_flops * 43


def driven_steps(machine: MachineSpec, micro_batch_size: int, count: int) -> list[StepTiming]:
    """So many steps of 24 micro-batches on three systems."""
    cluster = ClusterTiming(machine, 3, 1)
    captured = compiled_at(micro_batch_size, 24).program
    cluster.load_program(CostedProgram.of(captured, plan_streams(captured, 1), machine))
    return [cluster.step(ProgramKind.TRAIN, step) for step in range(1, count + 1)]


def test_the_first_steps_are_reported_until_they_settle(program: ScalableProgram) -> None:
    """All that follow are as long as the one that is predicted."""
    prediction = Simulator(program, MACHINE).predict(24 * 4, 4, 3)
    steps_ps = [timing.duration_ps for timing in driven_steps(MACHINE, 4, 8)]
    settled = len(prediction.steps_ps)
    assert settled == prediction.timing.step
    assert list(prediction.steps_ps) == steps_ps[:settled]
    assert {prediction.timing.duration_ps} == set(steps_ps[settled - 1 :])


def test_steps_that_take_turns_are_predicted_by_their_mean(program: ScalableProgram) -> None:
    """A batch that is long on its way lets some steps wait and others not."""
    machine = MachineSpec.model_validate(
        {"input": {"latency_ps": PS_PER_S, "prefetch_batches": 20}}
    )
    prediction = Simulator(program, machine).predict(24, 1, 3)
    later = driven_steps(machine, 1, 61)[1:]
    assert len(set(prediction.steps_ps[1:])) > 1
    mean_ps = sum(timing.duration_ps for timing in later) / len(later)
    assert prediction.timing.duration_ps == pytest.approx(mean_ps, rel=1e-4)
    assert prediction.timing.attribution.input > 0


def test_steps_with_jitter_are_predicted_by_the_mean_of_a_few(program: ScalableProgram) -> None:
    """But for the first, which has nothing under way."""
    machine = MachineSpec.model_validate({"jitter": {"seed": 1, "kernel_sigma": 0.2}})
    prediction = Simulator(program, machine).predict(24, 1, 3)
    few = [timing.duration_ps for timing in driven_steps(machine, 1, JITTERED_STEPS)]
    assert list(prediction.steps_ps) == few
    assert prediction.timing.duration_ps == sum(few[1:]) // len(few[1:])


def test_the_optimizer_of_a_step_is_part_of_its_time(program: ScalableProgram) -> None:
    """What MemoryX keeps and does for it, and whether it waits for the norm of all gradients."""
    optimizer = OptimizerSpec(
        "AdamW", (ParamGroup(tuple(program.parameter), {"amsgrad": False}),), 1.0
    )
    with_update = Simulator.of(program, optimizer, MACHINE, 2)
    assert with_update.update == update_cost(optimizer, program.parameter)
    assert with_update.update.state_bytes == 8
    assert with_update.waits_for_all
    without = Simulator.of(program, None, MACHINE, 2)
    assert (without.update, without.waits_for_all) == (NO_UPDATE, False)
