"""What fits is placed, with as little recomputed as it takes; the rest is refused with numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_programs import program, segment
from timing.hardware import CS2, CS3, override
from timing.sram import (
    SramPlan,
    code_bytes,
    data_bytes,
    largest_micro_batch,
    largest_with_recompute,
    moments,
    plan_sram,
    recomputable,
    recompute,
)
from wsc.core.errors import ApplianceResourceExhausted, ConfigError
from wsc.core.program import Footprint, OpWork, Stash
from wsc.core.units import format_bytes

GB = 1_000_000_000


def layers(count, *, internal=4, output=1, fixed=0):
    """Forward and backward of a chain of layers: sizes in 100 MB per sample."""
    unit = GB // 10
    forward = [
        segment(
            i,
            layer=f"layer.{i}",
            inputs=(f"h{i - 1}",) if i else ("x",),
            outputs=(f"h{i}", f"inner{i}"),
            drops=(),
            stash=(
                Stash((f"h{i}",), Footprint(0, output * unit)),
                Stash((f"inner{i}",), Footprint(fixed, internal * unit)),
            ),
            working=Footprint(fixed, (output + internal) * unit),
            work=(OpWork(f"forward {i}", "matmul", 10, reruns=True),),
            weights=("first.weight",),
        )
        for i in range(count)
    ]
    backward = [
        segment(
            2 * count - 1 - i,
            "backward",
            f"layer.{i}",
            inputs=(f"inner{i}", *((f"d{i + 1}",) if i + 1 < count else (f"h{i}",))),
            outputs=(f"d{i}",) if i else (),
            drops=(f"inner{i}", *((f"d{i + 1}",) if i + 1 < count else (f"h{i}",)), f"h{i}"),
            stash=(Stash((f"d{i}",), Footprint(0, output * unit)),) if i else (),
            working=Footprint(0, output * unit),
            work=(OpWork(f"backward {i}", "matmul", 20),),
        )
        for i in reversed(range(count))
    ]
    return replace(program(segments=(*forward, *backward)), micro_batch_size=1)


def test_code_leaves_most_of_the_sram():
    """A CS-2: 48 KiB less 4,176 B of each of 850,000 PEs."""
    assert code_bytes(CS2) == 850_000 * 4176
    assert data_bytes(CS2) == 850_000 * (48 * 1024 - 4176)
    assert data_bytes(CS3) > data_bytes(CS2)


def test_a_wafer_without_room_is_refused():
    """The numbers that leave nothing."""
    with pytest.raises(ConfigError, match="no SRAM left") as caught:
        data_bytes(override(CS2, sram_bytes=1))
    assert caught.value.where == "machine.system.sram_bytes"
    assert "code takes 3.3 GiB" in caught.value.rule
    assert data_bytes(override(CS2, sram_bytes=code_bytes(CS2) + 1)) == 1
    with pytest.raises(ConfigError, match="no SRAM left"):
        data_bytes(override(CS2, sram_bytes=code_bytes(CS2)))
    with pytest.raises(ValueError, match="greater than 0"):
        override(CS2, sram_bytes=0)


def test_internals_are_what_the_own_backward_pass_alone_reads():
    """Every layer has some, but those of the last layer are read at once."""
    assert recomputable(layers(3)) == (0, 1)
    assert recomputable(program()) == ()


@pytest.mark.parametrize("reader", [1, 2, 3])
def test_what_others_read_too_is_no_internal(reader):
    """Another segment of the layer's forward pass, the next layer, or its backward pass."""
    order = [("forward", "a"), ("forward", "a"), ("forward", "b")]
    order += [("backward", "b"), ("backward", "a")]

    def step(*readers):
        return program(
            segments=tuple(
                segment(
                    index,
                    phase,
                    layer,
                    inputs=("h",) if index in readers else (),
                    outputs=("h",) if index == 0 else (),
                    stash=(Stash(("h",), Footprint(0, 1)),) if index == 0 else (),
                )
                for index, (phase, layer) in enumerate(order)
            )
        )

    assert recomputable(step(4)) == (0,)
    assert recomputable(step(reader, 4)) == ()


def test_recompute_keeps_inputs_instead_of_internals():
    """The forward segment leaves its output; the backward segment reads what the forward read."""
    plain = layers(3)
    again = recompute(plain, [1])
    assert again.segments[1].outputs == ("h1",)
    assert again.segments[4].inputs == ("d2", "h0")
    assert [work.op for work in again.segments[4].work] == ["forward 1", "backward 1"]
    assert again.segments[4].weights == ("first.weight",)
    assert "h0" in again.segments[4].drops
    assert again.segments[4].working == Footprint(0, 5 * GB // 10)
    assert again.digest != plain.digest
    unchanged = (0, 2, 3, 5)
    assert all(again.segments[i].work == plain.segments[i].work for i in unchanged)


def test_recompute_drops_every_value_once_after_its_last_reader():
    """As every program does, so that its schedule can be walked."""
    again = recompute(layers(4), [0, 2])
    dropped = [name for s in again.segments for name in s.drops]
    assert len(dropped) == len(set(dropped))
    for s in again.segments:
        later = {name for other in again.segments[s.index + 1 :] for name in other.inputs}
        assert not later & set(s.drops)
        assert set(s.drops) <= set(s.inputs)


def test_a_segment_without_internals_cannot_be_recomputed():
    """It would cost time and save nothing."""
    with pytest.raises(ValueError, match="segment 4 keeps nothing"):
        recompute(layers(3), [4])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(1, 30))
def test_the_largest_micro_batch_fits_and_one_more_does_not(count, internal, fixed, sram_gb):
    """By looking at every moment of the step."""
    step = layers(count, internal=internal, fixed=fixed * GB // 4)
    wafer = override(CS2, sram_bytes=9 * GB + sram_gb * GB)
    size = largest_micro_batch(step, wafer)
    fits, too_large = (
        SramPlan.of(replace(step, micro_batch_size=each), wafer).fits for each in (size, size + 1)
    )
    assert fits or size == 0
    assert not too_large
    assert largest_with_recompute(step, wafer) >= size


def test_what_fits_is_left_as_it_is():
    """No time is spent on recompute that is not needed."""
    step = layers(5)
    sram_plan = plan_sram(step, CS2)
    assert (sram_plan.program, sram_plan.recomputed) == (step, ())
    assert sram_plan.peak_bytes == max(map(sram_plan.bytes_at, moments(step)))


@pytest.mark.parametrize("room", range(8, 22))
def test_as_few_layers_are_recomputed_as_it_takes(room):
    """Four layers of 5 units take 20 units and the first gradient; each recompute saves up to 4."""
    step = layers(4)
    wafer = override(CS2, sram_bytes=code_bytes(CS2) + room * GB // 10)
    if largest_with_recompute(step, wafer) < 1:
        with pytest.raises(ApplianceResourceExhausted):
            plan_sram(step, wafer)
        return
    sram_plan = plan_sram(step, wafer)
    assert sram_plan.fits
    assert sram_plan.recomputed == tuple(range(len(sram_plan.recomputed)))
    if sram_plan.recomputed:
        fewer = recompute(step, sram_plan.recomputed[:-1])
        assert largest_micro_batch(fewer, wafer) == 0


def test_what_does_not_fit_is_refused_with_the_numbers():
    """Needed, there, and the largest micro-batch that would fit."""
    step = replace(layers(10), micro_batch_size=64)
    with pytest.raises(
        ApplianceResourceExhausted, match="activations and buffers of one train micro-batch need"
    ) as caught:
        plan_sram(step, CS2)
    largest = largest_with_recompute(step, CS2)
    assert caught.value.value == "micro-batch of 64 samples, with 9 layers recomputed"
    assert f"CS-2 has {format_bytes(data_bytes(CS2))} for data" in caught.value.rule
    assert f"micro_batch_size to {largest} or less" in caught.value.remedy
    assert plan_sram(replace(step, micro_batch_size=largest), CS2).fits


def test_a_model_of_which_no_sample_fits_is_refused():
    """No micro-batch size helps, so none is named."""
    with pytest.raises(ApplianceResourceExhausted) as caught:
        plan_sram(layers(2, internal=4000), CS2)
    assert "not even one sample fits" in caught.value.remedy
