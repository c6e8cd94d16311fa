"""What lies on a wafer at each moment, against counting by hand and by brute force."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_programs import program, segment
from timing.sram.liveness import lives, moments
from wsc.core.program import Footprint, Stash


def stash(*values, size=1, fixed=0):
    return Stash(values, Footprint(fixed, size))


LAYERS = (
    segment(0, layer="a", outputs=("x", "a.in"), stash=(stash("x", size=4), stash("a.in", size=7))),
    segment(1, layer="b", inputs=("x",), outputs=("y",), stash=(stash("y", size=3, fixed=2),)),
    segment(2, "backward", "b", inputs=("x", "y"), outputs=("dx",), stash=(stash("dx", size=5),)),
    segment(3, "backward", "a", inputs=("dx", "a.in"), working=Footprint(1, 9)),
)


def test_a_stash_lies_there_from_after_its_producer_to_its_last_reader():
    """Counted by hand; the producer itself has it in its working set."""
    found = [moment.stash for moment in moments(program(segments=LAYERS))]
    assert found == [Footprint(), Footprint(0, 11), Footprint(2, 14), Footprint(0, 12)]


def test_the_footprint_of_a_moment_adds_what_the_segment_makes():
    """Stash and working set together, for any number of samples."""
    last = moments(program(segments=LAYERS))[-1]
    assert last.footprint == Footprint(1, 21)
    assert last.footprint.of(3) == 64


def test_memory_lives_as_long_as_any_view_of_it():
    """A later segment's view keeps the memory of an earlier one."""
    segments = (
        segment(0, outputs=("x",), stash=(stash("x", "x.view", size=4),)),
        segment(1, inputs=("x",), outputs=("x.view",)),
        segment(2),
        segment(3, inputs=("x.view",)),
    )
    assert [m.stash.sample_bytes for m in moments(program(segments=segments))] == [0, 4, 4, 4]


def test_what_nobody_reads_is_not_kept():
    """It cannot be in the stash of a program, and would take no room if it were."""
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
def test_the_running_sum_agrees_with_looking_at_every_value(made):
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
