"""SRAM at each moment of a step, against counting by hand and by brute force."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.programs.layered_steps import step_with_head
from tests.support.programs.small_programs import program, segment
from tests.support.timing.machines import alone
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import Footprint, OpWork, Stash
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, CS3, override
from waferstream.machine.sram import data_bytes, largest_micro_batch
from waferstream.machine.sram.space import (
    HEAD_TOKENS,
    Buffers,
    buffer_bytes,
    code_bytes,
    link_bytes,
    lives,
    moments,
    output_head,
)


def stash(*values: str, size: int = 1, fixed: int = 0) -> Stash:
    return Stash(values, Footprint(fixed, size))


LAYERS = (
    segment(0, layer="a", outputs=("x", "a.in"), stash=(stash("x", size=4), stash("a.in", size=7))),
    segment(1, layer="b", inputs=("x",), outputs=("y",), stash=(stash("y", size=3, fixed=2),)),
    segment(2, "backward", "b", inputs=("x", "y"), outputs=("dx",), stash=(stash("dx", size=5),)),
    segment(3, "backward", "a", inputs=("dx", "a.in"), working=Footprint(1, 9)),
)


def test_moments_keep_a_stash_until_its_last_reader() -> None:
    """Counted by hand; the producer itself has it in its working set."""
    found = [moment.stash for moment in moments(program(segments=LAYERS))]
    assert found == [Footprint(), Footprint(0, 11), Footprint(2, 14), Footprint(0, 12)]


def test_moment_footprint_adds_the_working_set() -> None:
    """Stash and working set together, for any number of samples."""
    last = moments(program(segments=LAYERS))[-1]
    assert last.footprint == Footprint(1, 21)
    assert last.footprint.of(3) == 64


def test_moments_keep_memory_as_long_as_any_view_of_it() -> None:
    """A later segment's view keeps the memory of an earlier one."""
    segments = (
        segment(0, outputs=("x",), stash=(stash("x", "x.view", size=4),)),
        segment(1, inputs=("x",), outputs=("x.view",)),
        segment(2),
        segment(3, inputs=("x.view",)),
    )
    assert [m.stash.sample_bytes for m in moments(program(segments=segments))] == [0, 4, 4, 4]


def test_lives_leave_out_values_without_readers() -> None:
    """They take no SRAM."""
    segments = (segment(0, outputs=("x",), stash=(stash("x"),)), segment(1))
    assert [m.stash for m in moments(program(segments=segments))] == [Footprint(), Footprint()]
    assert list(lives(program(segments=segments))) == []


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=3),
        min_size=1,
        max_size=8,
    )
)
def test_moments_agree_with_adding_up_every_value(made: list[list[tuple[int, int]]]) -> None:
    """Each segment stashes values of some size, each read once some segments later."""
    count = len(made)
    ranges = {
        f"v{i}.{k}": (i, min(i + distance, count - 1), size)
        for i, values in enumerate(made)
        for k, (distance, size) in enumerate(values)
        if i < count - 1
    }
    segments = tuple(
        segment(
            i,
            inputs=tuple(name for name, (_, last, _) in ranges.items() if last == i),
            stash=tuple(
                stash(n, size=size) for n, (first, _, size) in ranges.items() if first == i
            ),
        )
        for i in range(count)
    )
    found = [moment.stash.sample_bytes for moment in moments(program(segments=segments))]
    assert found == [
        sum(size for first, last, size in ranges.values() if first < i <= last)
        for i in range(count)
    ]


def test_output_head_follows_the_last_repeated_layer() -> None:
    """It ends with that layer's backward pass; a step without repeated layers has none."""
    assert output_head(step_with_head()) == range(2, 4)
    assert not output_head(program())


def test_output_head_is_there_for_one_sample() -> None:
    """However large the micro-batch; what comes in and goes on is there for all samples."""
    inside = [moment.footprint for moment in moments(step_with_head())][2:4]
    assert inside == [Footprint(7 + 200, 2), Footprint(100 + 200, 2)]
    assert moments(step_with_head())[4].footprint == Footprint(0, 4)


def test_output_head_runs_a_long_sample_in_parts() -> None:
    """A quarter of it, if that is as many tokens as the head runs at a time."""
    step = step_with_head()
    product = OpWork("mm", "matmul", 1, (1, 4 * HEAD_TOKENS - 1, 8, 50), streams=True)
    segments = list(step.segments)
    segments[2] = replace(segments[2], work=(product,))
    parts = replace(step, segments=tuple(segments), micro_batch_size=1)
    whole, quarter = ([m.working.of(1) for m in moments(each)][2] for each in (step, parts))
    assert (whole, quarter) == (207, 52)


def test_output_head_does_not_bound_the_micro_batch() -> None:
    """With a head that makes a hundred times what a layer makes, a layer decides."""
    assert largest_micro_batch(step_with_head(), alone(CS2)) == data_bytes(CS2) // 4


def chain(first: int, last: int) -> Program:
    """Return two layers forward and backward, with weights of so many elements."""
    segments = (
        segment(0, layer="first", weights=("first",)),
        segment(1, layer="last", weights=("last",)),
        segment(2, layer="loss"),
        segment(3, "backward", "last", weights=("last",), gradients=("last",)),
        segment(4, "backward", "first", gradients=("first",)),
    )
    parameters = (TensorSpec("first", (first,), "float32"), TensorSpec("last", (last,), "float32"))
    return replace(program(segments=segments), parameters=parameters, stream_dtype="bfloat16")


def test_data_bytes_are_the_sram_without_code() -> None:
    """A CS-2: 48 KiB less 4,176 B of each of 850,000 PEs."""
    assert code_bytes(CS2) == 850_000 * 4176
    assert data_bytes(CS2) == 850_000 * (48 * 1024 - 4176)
    assert data_bytes(CS3) > data_bytes(CS2)


def test_data_bytes_need_more_sram_than_code() -> None:
    """A wafer with SRAM for code alone is refused, with the key to change."""
    assert data_bytes(override(CS2, sram_bytes=code_bytes(CS2) + 1)) == 1
    for sram_bytes in (1, code_bytes(CS2)):
        with raises(ConfigError, "no-sram-for-data") as caught:
            data_bytes(override(CS2, sram_bytes=sram_bytes))
        assert caught.value.where == "machine.system.sram_bytes"
        assert format_bytes(code_bytes(CS2)) in str(caught.value.rule)


def test_link_bytes_are_those_of_the_segment_overhead() -> None:
    """1.2 Tb/s for a millisecond."""
    wafer = override(CS2, io_bandwidth_bytes_per_s=150 * 10**9, segment_overhead_ps=10**9)
    assert link_bytes(wafer) == 150 * 10**6


def test_buffers_are_no_larger_than_their_streams() -> None:
    """Weights of two bytes, its own or those that arrive for the next, and gradients of four."""
    assert buffer_bytes(chain(100, 300), CS2) == (600, 600, 600, 600 + 1200, 400)


def test_buffers_stream_again_during_the_segment_before() -> None:
    """Both segments need a buffer; weights that a segment has already stream once."""
    buffers = Buffers(chain(100, 300), CS2)
    buffers.stream_again(("last", "first"), 3)
    assert tuple(buffers.num_bytes) == (600, 600, 800, 800 + 1200, 400)


@pytest.mark.parametrize("elements", [10**10, 10**12])
def test_buffers_do_not_grow_with_layers_beyond_the_link(elements: int) -> None:
    """So a model of any size trains, however little SRAM there is."""
    most = link_bytes(CS2)
    assert buffer_bytes(chain(elements, elements), CS2) == (most, most, most, 2 * most, most)
