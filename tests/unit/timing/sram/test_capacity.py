"""What fits with every number of layers recomputed, from one pass over the program."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_programs import program, segment
from timing.hardware import CS2, override
from timing.sram import (
    capacities,
    data_bytes,
    largest_micro_batch,
    recomputable,
    recompute,
)
from timing.sram.fit import num_recomputed
from wsc.core.errors import ConfigError
from wsc.core.program import Footprint, Stash, TensorSpec

MB = 1_000_000
footprints = st.builds(Footprint, st.integers(0, 50 * MB), st.integers(1, 100 * MB))


@st.composite
def steps(draw):
    """Layers that read a mask of the first one, some with two segments in the backward pass."""
    count = draw(st.integers(1, 5))

    def piece(*names):
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


@given(steps(), st.integers(1, 20))
def test_one_pass_tells_what_every_recomputed_program_would(step, sram_gb):
    """For any number of recomputed layers, first ones first."""
    wafer = override(CS2, sram_bytes=4_000 * MB + sram_gb * 1000 * MB)
    choices = recomputable(step)
    assert capacities(step, wafer) == tuple(
        largest_micro_batch(recompute(step, choices[:count]) if count else step, wafer)
        for count in range(len(choices) + 1)
    )


def test_what_is_gone_by_then_counts_where_it_lay():
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


def test_as_few_are_recomputed_as_hold_the_samples():
    """All of them where nothing helps, so that the error can say so."""
    assert [num_recomputed((2, 5, 5, 9), samples) for samples in (1, 2, 3, 5, 6, 9, 10)] == [
        0, 0, 1, 1, 3, 3, 3,
    ]  # fmt: skip


def test_a_wafer_without_room_has_no_capacity():
    """The error is that of the room."""
    with pytest.raises(ConfigError, match="no SRAM left"):
        capacities(program(), override(CS2, sram_bytes=1))
