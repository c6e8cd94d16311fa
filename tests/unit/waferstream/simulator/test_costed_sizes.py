"""A step at any micro-batch size, each made once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.programs.plain_steps import backward_step, mean_square
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import ScalableProgram, capture_both
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramPlan
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.costed_sizes import CostedSizes, PlannedSizes, memory_key

MACHINE = MachineSpec()


def compiled_at(size: int) -> Compiled:
    """Three layers whose activations are far larger than their weights."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)))
    step = backward_step(model, mean_square)
    request = CompileRequest(StreamPrecision(), size, 1, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 4096, 16))], request)[0]


@pytest.fixture(scope="module")
def program() -> ScalableProgram:
    return capture_both(compiled_at)


def costed_program_of(plan: SramPlan) -> CostedProgram:
    streams = plan_streams(plan.program, 1)
    return CostedProgram.of(plan.program, streams, MACHINE, sram_plan=plan)


@pytest.fixture
def step(program: ScalableProgram) -> CostedSizes:
    return CostedSizes(PlannedSizes(program, MACHINE), MACHINE, costed_program_of)


def test_the_largest_micro_batch_is_the_last_that_fits(step: CostedSizes) -> None:
    """One sample more runs in blocks, and ten times as many are refused."""
    largest = step.plans.largest_sizes[-1]
    sram_plan = step.plans.sram_plan(largest)
    assert sram_plan.program.micro_batch_size == largest
    assert sram_plan.recomputed
    assert not sram_plan.runs_in_blocks
    assert step.plans.sram_plan(largest + 1).runs_in_blocks
    with pytest.raises(ApplianceResourceExhausted):
        step.plans.sram_plan(10 * largest)


def test_blocks_are_costed(step: CostedSizes) -> None:
    """Each is started, and so each micro-batch that runs in some takes longer than its share."""
    largest = step.plans.largest_sizes[-1]
    whole, blocked = step.costed(largest), step.costed(largest + 1)
    assert blocked is not step.costed(largest + 2)
    for before, after, segment in zip(
        whole.costs, blocked.costs, blocked.program.segments, strict=True
    ):
        if segment.blocks > 1:
            assert after.overhead_ps >= segment.blocks * MACHINE.system.segment_overhead_ps
            assert after.compute_ps > before.compute_ps
            assert blocked.schedule[segment.index].load != whole.schedule[segment.index].load


def test_micro_batch_that_may_overflow_is_costed(program: ScalableProgram) -> None:
    """With all recomputed that can be, as for the largest that fits."""
    plans = PlannedSizes(program, MACHINE, allows_overflow=True)
    step = CostedSizes(plans, MACHINE, costed_program_of)
    largest = step.plans.largest_sizes[-1]
    at_most, beyond = step.plans.sram_plan(largest), step.plans.sram_plan(2 * largest)
    assert at_most.overflow is None
    assert beyond.overflow is not None
    assert beyond.overflow.sram_bytes > 0
    assert beyond.recomputed == at_most.recomputed
    assert step.costed(2 * largest).program.micro_batch_size == 2 * largest


def test_little_is_recomputed_where_little_is_needed(step: CostedSizes) -> None:
    """A single sample needs nothing, and no smaller size needs more than a larger one."""
    sizes = [1, step.plans.largest_sizes[-1] // 2, step.plans.largest_sizes[-1]]
    counts = [len(step.plans.sram_plan(size).recomputed) for size in sizes]
    assert counts[0] == 0
    assert counts == sorted(counts)


def test_a_scaled_costed_program_is_the_one_made_afresh(step: CostedSizes) -> None:
    """It does not depend on earlier sizes, with the same or other segments recomputed."""
    largest = step.plans.largest_sizes[-1]
    for size in (largest, 1, 2, largest - 1, 3):
        found = step.costed(size)
        alone = step.plans.sram_plan(size).program
        fresh = CostedProgram.of(alone, plan_streams(alone, 1), MACHINE)
        assert found.program.micro_batch_size == size
        assert (found.costs, found.load_ps, found.schedule, found.paged) == (
            fresh.costs,
            fresh.load_ps,
            fresh.schedule,
            fresh.paged,
        )


def test_what_was_made_is_kept(program: ScalableProgram) -> None:
    """Asking again makes nothing; sizes that recompute the same share one costed made."""
    made: list[int] = []

    def noting(plan: SramPlan) -> CostedProgram:
        made.append(plan.program.micro_batch_size)
        return costed_program_of(plan)

    step = CostedSizes(PlannedSizes(program, MACHINE), MACHINE, noting)
    assert step.costed(1) is step.costed(1)
    step.costed(2)
    assert made == [1]


def test_machines_of_one_memory_share_plans() -> None:
    """A clock and the rates of MemoryX and SwarmX change no plan; the link of a system does."""
    faster = {"clock_hz": 2 * MACHINE.system.clock_hz}
    wider = {"io_bandwidth_bytes_per_s": 2 * MACHINE.system.io_bandwidth_bytes_per_s}
    keys = {
        name: memory_key(
            MACHINE.model_copy(update={part: getattr(MACHINE, part).model_copy(update=new)})
        )
        for name, part, new in (
            ("same", "system", {}),
            ("clock", "system", faster),
            ("tree", "swarmx", {"fan_out": 2}),
            ("link", "system", wider),
        )
    }
    assert keys["same"] == keys["clock"] == keys["tree"]
    assert keys["same"] != keys["link"]
