"""Programs that fit are planned with as little recomputed as it takes; others are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.programs.layered_steps import GB, layers
from tests.support.timing.machines import alone
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.micro_batches import Cut, MicroBatchPolicy
from waferstream.core.program.program import TensorSpec
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, override
from waferstream.machine.sram import (
    Overflow,
    SramPlan,
    code_bytes,
    data_bytes,
    largest_micro_batch,
    largest_with_recompute,
    moments,
    num_recomputed,
    plan_sram,
    recompute,
)
from waferstream.machine.sram.space import buffer_bytes, link_bytes


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(1, 30))
def test_largest_micro_batch_fits_and_one_more_does_not(
    count: int, internal: int, fixed: int, sram_gb: int
) -> None:
    """By looking at every moment of the step."""
    step = layers(count, internal=internal, fixed=fixed * GB // 4)
    wafer = override(CS2, sram_bytes=9 * GB + sram_gb * GB)
    size = largest_micro_batch(step, alone(wafer))
    fits, too_large = (
        SramPlan.of(replace(step, micro_batch_size=each), alone(wafer)).fits
        for each in (size, size + 1)
    )
    assert fits or size == 0
    assert not too_large
    assert largest_with_recompute(step, alone(wafer)) >= size


def test_plan_sram_recomputes_nothing_that_fits() -> None:
    """No time is spent on recompute that is not needed."""
    step = layers(5)
    sram_plan = plan_sram(step, alone(CS2))
    assert (sram_plan.program, sram_plan.recomputed) == (step, ())
    assert sram_plan.peak_bytes == max(map(sram_plan.bytes_at, moments(step)))


@pytest.mark.parametrize("room", range(8, 22))
def test_plan_sram_recomputes_as_few_layers_as_it_takes(room: int) -> None:
    """Four layers of 5 units take 20 units and the first gradient; each recompute saves up to 4."""
    step = layers(4)
    wafer = override(CS2, sram_bytes=code_bytes(CS2) + room * GB // 10)
    if largest_with_recompute(step, alone(wafer)) < 1:
        with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram"):
            plan_sram(step, alone(wafer))
        return
    sram_plan = plan_sram(step, alone(wafer))
    assert sram_plan.fits
    assert sram_plan.recomputed == tuple(range(len(sram_plan.recomputed)))
    if sram_plan.recomputed:
        fewer = recompute(step, sram_plan.recomputed[:-1])
        assert largest_micro_batch(fewer, alone(wafer)) == 0


def test_plan_sram_refuses_what_does_not_fit() -> None:
    """The error has the sizes, those of a sample too, and as remedy one that would fit."""
    inputs = (TensorSpec("input_ids", (64, 32_768), "int64"),)
    step = replace(layers(10), micro_batch_size=64, inputs=inputs)
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(step, alone(CS2))
    largest = largest_with_recompute(step, alone(CS2))
    assert "64 samples of 32,768 tokens, with 9 layers recomputed" in str(caught.value.value)
    assert format_bytes(data_bytes(CS2)) in str(caught.value.rule)
    assert plan_sram(replace(step, micro_batch_size=largest), alone(CS2)).fits
    assert f"to {Cut.of(step.batch_size, largest).size} or less" in str(caught.value.remedy)


def test_the_size_that_a_refusal_names_is_taken() -> None:
    """Not the largest that fits, if the closest size that cuts the batch evenly is larger."""
    fitting = replace(layers(10), num_micro_batches=1)
    largest = largest_with_recompute(fitting, alone(CS2))
    batch = largest + 1
    assert MicroBatchPolicy(largest).size(batch, 1) == batch
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(replace(fitting, micro_batch_size=batch), alone(CS2))
    (named,) = map(int, re.findall(r"to (\d+) or less", str(caught.value.remedy)))
    assert 1 < MicroBatchPolicy(named).size(batch, 1) == named <= largest


def test_plan_sram_names_no_size_where_none_fits() -> None:
    """Another micro-batch size would not help."""
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(layers(2, internal=4000), alone(CS2))
    assert "micro_batch_size" not in str(caught.value.remedy)


def test_overflow_is_what_the_wafer_lacks_at_the_peak() -> None:
    """A plan that fits has none."""
    machine, step = alone(CS2), replace(layers(10), micro_batch_size=64)
    largest = largest_micro_batch(step, machine)
    sram_plan = SramPlan.of(step, machine)
    assert sram_plan.overflow == Overflow(
        "layer.9 forward", sram_plan.peak_bytes - data_bytes(CS2), server_bytes=0
    )
    assert SramPlan.of(replace(step, micro_batch_size=largest), machine).overflow is None


def test_num_recomputed_is_the_fewest_that_hold_the_samples() -> None:
    """All of them where nothing helps, so that the error can say so."""
    assert [num_recomputed((2, 5, 5, 9), samples) for samples in (1, 2, 3, 5, 6, 9, 10)] == [
        0, 0, 1, 1, 3, 3, 3,
    ]  # fmt: skip


def test_plan_counts_buffers_beside_activations() -> None:
    """At every moment, and so at the peak."""
    weight = TensorSpec("first.weight", (10**10,), "float32")
    step = replace(layers(2), parameters=(weight,))
    sram_plan = SramPlan.of(step, alone(CS2))
    assert sram_plan.buffers == buffer_bytes(step, CS2)
    activations = sram_plan.peak.footprint.of(step.micro_batch_size)
    assert sram_plan.peak_bytes == activations + link_bytes(CS2)


def test_plan_with_program_is_the_plan_of_that_program() -> None:
    """Of the same step at another micro-batch size."""
    step = layers(3)
    larger = replace(step, micro_batch_size=5)
    assert SramPlan.of(step, alone(CS2)).with_program(larger) == SramPlan.of(larger, alone(CS2))
