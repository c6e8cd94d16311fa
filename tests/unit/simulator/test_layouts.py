"""A step at any micro-batch size, each made once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simulator.costed_program import CostedProgram
from simulator.layouts import Layouts
from tests.support.plain_steps import backward_step, mean_square
from timing.hardware import MachineSpec
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.derivation.scale import ScalableProgram, capture_both
from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.program.program import Program
from wsc.core.program.stream_plan import plan_streams
from wsc.numerics.precision import StreamPrecision

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
def layouts(program: ScalableProgram) -> Layouts:
    return Layouts(program, MACHINE, costed_program_of)


def test_the_largest_micro_batch_is_the_last_that_fits(layouts: Layouts) -> None:
    """One sample more is refused, with any recomputation."""
    largest = layouts.largest_micro_batch
    sram_plan = layouts.sram_plan(largest)
    assert sram_plan.program.micro_batch_size == largest
    assert sram_plan.recomputed
    with pytest.raises(ApplianceResourceExhausted):
        layouts.sram_plan(largest + 1)


def test_little_is_recomputed_where_little_is_needed(layouts: Layouts) -> None:
    """A single sample needs nothing, and no smaller size needs more than a larger one."""
    sizes = [1, layouts.largest_micro_batch // 2, layouts.largest_micro_batch]
    counts = [len(layouts.sram_plan(size).recomputed) for size in sizes]
    assert counts[0] == 0
    assert counts == sorted(counts)


def test_a_scaled_timetable_is_the_one_made_afresh(layouts: Layouts) -> None:
    """It does not depend on earlier sizes, with the same or other segments recomputed."""
    largest = layouts.largest_micro_batch
    for size in (largest, 1, 2, largest - 1, 3):
        found = layouts.costed(size)
        fresh = costed_program_of(layouts.sram_plan(size).program)
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

    layouts = Layouts(program, MACHINE, noting)
    assert layouts.costed(1) is layouts.costed(1)
    layouts.costed(2)
    assert made == [1]
