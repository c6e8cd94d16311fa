"""Timelines, wires, windows and stamps: the four kinds of resource."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.machine.record import Occupancy, Record
from waferstream.machine.timeline import (
    Arrival,
    Stamps,
    Timeline,
    Window,
    Wire,
    resume,
    state_of,
)

arrivals = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(
    lambda pair: Arrival(pair[0], pair[0] + pair[1])
)
payloads = st.lists(st.tuples(arrivals, st.integers(1, 10_000)), min_size=1, max_size=20)


def test_work_starts_when_resource_and_inputs_are_ready() -> None:
    """The later of the two decides; the resource is then busy for the whole duration."""
    timeline = Timeline("wafer")
    assert timeline.occupy(5, 10) == (5, 15)
    assert timeline.occupy(0, 10) == (15, 25)
    assert timeline.occupy(100, 1) == (100, 101)


def test_a_timeline_records_what_it_does_if_asked() -> None:
    """Each activity is listed with its times; waiting that takes no work is not."""
    record = Record()
    timeline = Timeline("wafer", record)
    timeline.occupy(5, 10, "layer 0")
    timeline.occupy(20, 0, "nothing")
    assert record.occupancies == [Occupancy("wafer", "layer 0", 5, 15)]


def test_payload_takes_bytes_over_bandwidth_plus_latency() -> None:
    """1000 bytes at 1 GB/s take a microsecond; the first byte is there after the latency."""
    wire = Wire("link", 10**9, latency_ps=7)
    assert wire.carry(Arrival(100, 100), 1000) == Arrival(107, 1_000_107)
    assert wire.carry(Arrival(100, 100), 1000) == Arrival(1_000_107, 2_000_107)


def test_a_slow_sender_holds_a_fast_wire_until_its_last_byte() -> None:
    """A payload cannot leave a wire before it has come."""
    wire = Wire("link", 10**12)
    assert wire.carry(Arrival(0, 5000), 1) == Arrival(0, 5000)
    assert wire.carry(Arrival(0, 0), 1) == Arrival(5000, 5001)


@given(payloads, st.integers(1, 6), st.integers(0, 1000))
def test_chain_of_equal_wires_adds_their_latencies(
    payloads: list[tuple[Arrival, int]], depth: int, latency_ps: int
) -> None:
    """Which is why the tree needs one wire per direction, however deep it is."""
    chain = [Wire("hop", 10**10, latency_ps) for _ in range(depth)]
    single = Wire("tree", 10**10, depth * latency_ps)
    for arrival, num_bytes in payloads:
        hopped = arrival
        for wire in chain:
            hopped = wire.carry(hopped, num_bytes)
        assert hopped == single.carry(arrival, num_bytes)


def test_a_window_opens_when_the_item_its_size_ago_came_back() -> None:
    """With two credits the third item waits for the first, the fourth for the second."""
    window = Window(2)
    assert [window.take(), window.take()] == [0, 0]
    window.give_back(30)
    assert window.take() == 30
    window.give_back(50)
    window.give_back(70)
    assert [window.take(), window.take()] == [50, 70]


def test_taking_more_than_a_window_holds_is_an_error() -> None:
    """Nothing waits for a credit that cannot come."""
    window = Window(1)
    window.take()
    with pytest.raises(IndexError):
        window.take()


def test_stamps_tell_when_something_happened_last() -> None:
    """0 if it never did, or if nobody keeps time of it."""
    stamps = Stamps()
    stamps.add(["a", "b"])
    stamps.stamp(["a"], 30)
    stamps.add(["b", "a", "c"])
    assert [stamps.last_of([name]) for name in "abcd"] == [30, 0, 0, 0]
    assert (stamps.last_of("abc"), stamps.last_of(()), stamps.latest_ps) == (30, 0, 30)


def test_resources_go_on_from_a_state_at_another_time() -> None:
    """Each by its own times; what was before the floor is as if it had been there."""

    def resources() -> tuple[Timeline, Window, Stamps]:
        stamps = Stamps()
        stamps.add(["a", "b"])
        return Timeline("wafer"), Window(2), stamps

    timeline, window, stamps = before = resources()
    timeline.occupy(0, 70)
    window.take()
    window.give_back(90)
    stamps.stamp(["b"], 40)
    state = state_of(before, 100, 60)
    assert state == (-30, -40, -10, -40, -40)
    timeline, window, stamps = after = resources()
    resume(after, state, 1000)
    assert timeline.free_ps == 970
    assert [window.take(), window.take()] == [960, 990]
    assert (stamps.last_of("a"), stamps.last_of("b"), stamps.latest_ps) == (960, 960, 960)
