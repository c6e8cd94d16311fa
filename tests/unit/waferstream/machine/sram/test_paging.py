"""Activations that have no room wait on activation servers, and come back in time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.programs.layered_steps import GB, layers
from tests.support.timing.machines import alone
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, ActivationSpec, MachineSpec, override
from waferstream.machine.sram import (
    SramPlan,
    code_bytes,
    largest_with_recompute,
    paged_bytes,
    plan_sram,
)

MACHINE = MachineSpec(system=override(CS2, sram_bytes=code_bytes(CS2) + 4 * GB))


def held(step: Program, plan: SramPlan) -> list[int]:
    """Return the bytes on the wafer at each segment, piece by piece, pages left out."""
    samples = step.micro_batch_size
    whole = [moment.footprint.of(samples) for moment in plan.paging.moments]
    for page in plan.pages:
        for at in range(page.sent_after + 2, page.needed_by - 1):
            whole[at] -= page.footprint.of(samples)
    return whole


@given(st.integers(3, 8), st.integers(1, 6), st.integers(1, 12))
def test_pages_leave_the_wafer_as_long_as_they_are_away(
    count: int, internal: int, samples: int
) -> None:
    """By counting at every segment, with the fewest pages that suffice."""
    step = replace(layers(count, internal=internal), micro_batch_size=samples)
    plan = SramPlan.of(step, MACHINE)
    assert [m.footprint.of(samples) for m in plan.moments] == held(step, plan)
    assert plan.fits == (samples <= plan.paging.largest)
    if plan.pages and plan.fits:
        assert samples > plan.paging.capacities[len(plan.pages) - 1]


def test_servers_make_room_for_larger_micro_batches() -> None:
    """Once all is recomputed, inputs of layers are what is left to move."""
    step = layers(20)
    without, with_them = (
        largest_with_recompute(step, machine) for machine in (alone(MACHINE.system), MACHINE)
    )
    assert with_them > 1.5 * without
    plan = plan_sram(replace(step, micro_batch_size=with_them), MACHINE)
    assert plan.fits
    assert plan.recomputed
    moved = paged_bytes(plan.program, plan.pages)
    assert sum(each.sent_bytes for each in moved) == sum(each.fetched_bytes for each in moved) > 0
    for page in plan.pages:
        assert plan.program.segments[page.sent_after].phase == "forward"
        assert plan.program.segments[page.needed_by].phase == "backward"


def test_micro_batch_that_servers_cannot_hold_is_refused() -> None:
    """They have memory for one sample's activations of a layer."""
    small = ActivationSpec(servers=1, memory_bytes=GB // 10)
    machine = MACHINE.model_copy(update={"activations": small})
    step = layers(20)
    largest = largest_with_recompute(step, machine)
    assert largest < largest_with_recompute(step, MACHINE)
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(replace(step, micro_batch_size=largest + 1), machine)
    assert f"servers of {format_bytes(GB // 10)}" in str(caught.value.rule)


def test_all_pages_are_away_where_nothing_fits() -> None:
    """What the servers lack is counted beside what the wafer lacks."""
    small = ActivationSpec(servers=1, memory_bytes=1)
    machine = MACHINE.model_copy(update={"activations": small})
    plan = SramPlan.of(replace(layers(20), micro_batch_size=1000), machine)
    assert plan.pages == plan.paging.pages
    assert plan.overflow is not None
    assert plan.overflow.server_bytes == plan.away_bytes - 1


@pytest.mark.parametrize("servers", [0, 12])
def test_step_that_fits_has_no_pages(servers: int) -> None:
    machine = MachineSpec(activations=ActivationSpec(servers=servers))
    assert SramPlan.of(layers(3), machine).pages == ()
