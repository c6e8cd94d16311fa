"""SRAM at each moment of a step, against counting by hand and by brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs.layered_steps import step_with_head
from tests.support.programs.small_programs import program, segment
from waferstream.core.program.segment import Footprint, Stash
from waferstream.machine.hardware import CS2
from waferstream.machine.sram import data_bytes, largest_micro_batch
from waferstream.machine.sram.liveness import lives, moments, output_head


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


def test_output_head_does_not_bound_the_micro_batch() -> None:
    """With a head that makes a hundred times what a layer makes, a layer decides."""
    assert largest_micro_batch(step_with_head(), CS2) == data_bytes(CS2) // 4
