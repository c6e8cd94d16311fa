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
from waferstream.core.program.program import Program
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.hardware import MachineSpec
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.costed_sizes import CostedSizes

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


def costed_program_of(program: Program) -> CostedProgram:
    return CostedProgram.of(program, plan_streams(program, 1), MACHINE)


@pytest.fixture
def step(program: ScalableProgram) -> CostedSizes:
    return CostedSizes(program, MACHINE, costed_program_of)


def test_the_largest_micro_batch_is_the_last_that_fits(step: CostedSizes) -> None:
    """One sample more is refused, with any recomputation."""
    largest = step.largest_micro_batch
    sram_plan = step.sram_plan(largest)
    assert sram_plan.program.micro_batch_size == largest
    assert sram_plan.recomputed
    with pytest.raises(ApplianceResourceExhausted):
        step.sram_plan(largest + 1)


def test_micro_batch_that_may_overflow_is_costed(program: ScalableProgram) -> None:
    """With all recomputed that can be, as for the largest that fits."""
    step = CostedSizes(program, MACHINE, costed_program_of, allows_overflow=True)
    largest = step.largest_micro_batch
    at_most, beyond = step.sram_plan(largest), step.sram_plan(2 * largest)
    assert at_most.overflow is None
    assert beyond.overflow is not None
    assert beyond.overflow.sram_bytes > 0
    assert beyond.recomputed == at_most.recomputed
    assert step.costed(2 * largest).program.micro_batch_size == 2 * largest


def test_little_is_recomputed_where_little_is_needed(step: CostedSizes) -> None:
    """A single sample needs nothing, and no smaller size needs more than a larger one."""
    sizes = [1, step.largest_micro_batch // 2, step.largest_micro_batch]
    counts = [len(step.sram_plan(size).recomputed) for size in sizes]
    assert counts[0] == 0
    assert counts == sorted(counts)


def test_a_scaled_costed_program_is_the_one_made_afresh(step: CostedSizes) -> None:
    """It does not depend on earlier sizes, with the same or other segments recomputed."""
    largest = step.largest_micro_batch
    for size in (largest, 1, 2, largest - 1, 3):
        found = step.costed(size)
        fresh = costed_program_of(step.sram_plan(size).program)
        assert found.program.micro_batch_size == size
        assert (found.costs, found.load_ps, found.schedule) == (
            fresh.costs,
            fresh.load_ps,
            fresh.schedule,
        )


def test_what_was_made_is_kept(program: ScalableProgram) -> None:
    """Asking again makes nothing; sizes that recompute the same share one costed made."""
    made: list[int] = []

    def noting(program: Program) -> CostedProgram:
        made.append(program.micro_batch_size)
        return costed_program_of(program)

    step = CostedSizes(program, MACHINE, noting)
    assert step.costed(1) is step.costed(1)
    step.costed(2)
    assert made == [1]
