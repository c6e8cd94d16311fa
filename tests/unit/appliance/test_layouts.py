"""A step at any micro-batch size, each made once."""

from __future__ import annotations

import pytest
import torch
from plain_steps import backward_step, mean_square
from torch import nn

from appliance.layouts import Layouts
from appliance.timetable import Timetable
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.precision import StreamPrecision
from wsc.compiler.scale import ScalableProgram, capture_both
from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.program import Program, plan_streams
from wsc.timing.hardware import MachineSpec

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


def timetable_of(program: Program) -> Timetable:
    return Timetable.of(program, plan_streams(program, 1), MACHINE)


@pytest.fixture
def layouts(program: ScalableProgram) -> Layouts:
    return Layouts(program, MACHINE, timetable_of)


def test_the_largest_micro_batch_is_the_last_that_fits(layouts: Layouts) -> None:
    """One sample more is refused, whatever is recomputed."""
    largest = layouts.largest_micro_batch
    placement = layouts.placement(largest)
    assert placement.program.micro_batch_size == largest
    assert placement.recomputed
    with pytest.raises(ApplianceResourceExhausted):
        layouts.placement(largest + 1)


def test_little_is_recomputed_where_little_is_needed(layouts: Layouts) -> None:
    """A single sample needs nothing, and no smaller size needs more than a larger one."""
    sizes = [1, layouts.largest_micro_batch // 2, layouts.largest_micro_batch]
    counts = [len(layouts.placement(size).recomputed) for size in sizes]
    assert counts[0] == 0
    assert counts == sorted(counts)


def test_a_scaled_timetable_is_the_one_made_afresh(layouts: Layouts) -> None:
    """Whatever sizes were asked for before, with the same segments recomputed or others."""
    largest = layouts.largest_micro_batch
    for size in (largest, 1, 2, largest - 1, 3):
        found = layouts.timetable(size)
        fresh = timetable_of(layouts.placement(size).program)
        assert found.program.micro_batch_size == size
        assert (found.costs, found.load_ps, found.visits) == (
            fresh.costs,
            fresh.load_ps,
            fresh.visits,
        )


def test_what_was_made_is_kept(program: ScalableProgram) -> None:
    """Asking again makes nothing; sizes that recompute the same share one timetable made."""
    made: list[int] = []

    def noting(program: Program) -> Timetable:
        made.append(program.micro_batch_size)
        return timetable_of(program)

    layouts = Layouts(program, MACHINE, noting)
    assert layouts.timetable(1) is layouts.timetable(1)
    layouts.timetable(2)
    assert made == [1]
