"""Recomputed segments of a program, and the samples that fit with every number of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.programs.layered_steps import GB, layers, step_with_head
from tests.support.programs.small_programs import program, segment
from tests.support.timing.machines import alone
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import Footprint, Phase, Stash
from waferstream.machine.hardware import CS2, override
from waferstream.machine.sram import (
    capacities,
    data_bytes,
    largest_micro_batch,
    recomputable,
    recompute,
)

MB = 1_000_000
footprints = st.builds(Footprint, st.integers(0, 50 * MB), st.integers(1, 100 * MB))


@st.composite
def steps(draw: st.DrawFn) -> Program:
    """Layers that read a mask of the first one, some with two segments in the backward pass."""
    count = draw(st.integers(1, 5))

    def piece(*names: str) -> Stash:
        return Stash(names, draw(footprints))

    forward = [
        segment(
            i,
            layer=f"layer.{i}",
            weights=(f"w{i}", f"b{i}"),
            inputs=(f"h{i - 1}", "mask") if i else ("x",),
            outputs=(f"h{i}", f"inner{i}", *(("mask",) if i == 0 else ())),
            stash=(piece(f"h{i}"), piece(f"inner{i}"), *((piece("mask"),) if i == 0 else ())),
            working=draw(footprints),
        )
        for i in range(count)
    ]
    backward = [
        segment(
            0,
            "backward",
            f"layer.{i}",
            weights=(f"w{i}",) if part == 0 else (),
            gradients=(f"w{i}",),
            inputs=(f"inner{i}", f"d{i + 1}"),
            outputs=(f"d{i}",),
            stash=(piece(f"d{i}"),) if part == 0 else (),
            working=draw(footprints),
        )
        for i in reversed(range(count))
        for part in range(draw(st.integers(1, 2)))
    ]
    sizes = st.integers(1, 200 * MB)
    return replace(
        program(segments=tuple(replace(s, index=i) for i, s in enumerate([*forward, *backward]))),
        parameters=tuple(
            TensorSpec(f"{kind}{i}", (draw(sizes),), "float32")
            for i in range(count)
            for kind in "wb"
        ),
        stream_dtype="bfloat16",
    )


def test_recomputable_segments_have_internals_read_later() -> None:
    """Every layer has internals, but those of the last layer are read at once."""
    assert recomputable(layers(3)) == (0, 1)
    assert recomputable(program()) == ()


@pytest.mark.parametrize("reader", [1, 2, 3])
def test_internals_are_read_by_the_own_backward_pass_alone(reader: int) -> None:
    """A value is none if the layer's forward pass, the next layer or its backward pass reads it."""
    order: list[tuple[Phase, str]] = [("forward", "a"), ("forward", "a"), ("forward", "b")]
    order += [("backward", "b"), ("backward", "a")]

    def step(*readers: int) -> Program:
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


def test_recomputable_leaves_out_the_output_head() -> None:
    """It keeps the internals of one sample anyway."""
    assert 2 not in recomputable(step_with_head())


def test_recompute_keeps_inputs_instead_of_internals() -> None:
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


def test_recompute_drops_every_value_once_after_its_last_reader() -> None:
    """As every program does, so that its schedule can be executed."""
    again = recompute(layers(4), [0, 2])
    dropped = [name for s in again.segments for name in s.drops]
    assert len(dropped) == len(set(dropped))
    for s in again.segments:
        later = {name for other in again.segments[s.index + 1 :] for name in other.inputs}
        assert not later & set(s.drops)
        assert set(s.drops) <= set(s.inputs)


def test_recompute_refuses_a_segment_without_internals() -> None:
    """It would cost time and save nothing."""
    with pytest.raises(ValueError, match="segment 4"):
        recompute(layers(3), [4])


@given(steps(), st.integers(1, 20))
def test_capacities_are_those_of_every_recomputed_program(step: Program, sram_gb: int) -> None:
    """For any number of recomputed layers, first ones first."""
    wafer = override(CS2, sram_bytes=4_000 * MB + sram_gb * 1000 * MB)
    choices = recomputable(step)
    assert capacities(step, wafer) == tuple(
        largest_micro_batch(recompute(step, choices[:count]) if count else step, alone(wafer))
        for count in range(len(choices) + 1)
    )


def test_capacities_count_values_dropped_before_the_rerun() -> None:
    """A value that only the second layer reads makes the first one the fullest, twice run or not."""
    unit = 100 * MB
    step = program(
        segments=(
            segment(0, outputs=("z",), stash=(Stash(("z",), Footprint(0, 5 * unit)),)),
            segment(
                1,
                layer="a",
                outputs=("inner",),
                stash=(Stash(("inner",), Footprint(0, 4 * unit)),),
                working=Footprint(0, 10 * unit),
            ),
            segment(2, layer="b", inputs=("z",)),
            segment(3, "backward", "b"),
            segment(4, "backward", "a", inputs=("inner",)),
        )
    )
    wafer = override(CS2, sram_bytes=40 * 1000 * MB)
    assert recomputable(step) == (1,)
    assert capacities(step, wafer) == (data_bytes(wafer) // (15 * unit),) * 2


def test_capacities_need_sram_for_data() -> None:
    """A wafer with SRAM for code alone is refused."""
    with raises(ConfigError, "no-sram-for-data"):
        capacities(program(), override(CS2, sram_bytes=1))
