"""The relay of a slow link, by times that the tests state."""

import pytest

from benchmarks.hosts.relay import MOST_QUEUED, Line

FRAME = bytes(1250)  # 10,000 bits


def arrivals(line: Line, until_s: float) -> list[bytes]:
    return list(line.arrived(until_s))


def test_frame_arrives_after_rate_and_delay() -> None:
    line = Line(delay_s=0.02, bits_per_s=1e6)
    line.offer(FRAME, 5.0)
    assert line.next_s == pytest.approx(5.03)
    assert arrivals(line, 5.02) == []
    assert arrivals(line, 5.04) == [FRAME]
    assert arrivals(line, 9.0) == []


def test_frames_wait_for_each_other_in_order() -> None:
    line = Line(delay_s=0.02, bits_per_s=1e6)
    frames = [bytes([number]) * 1250 for number in range(3)]
    for frame in frames:
        line.offer(frame, 5.0)
    assert arrivals(line, 5.035) == frames[:1]
    assert arrivals(line, 5.055) == frames[1:]
    line.offer(FRAME, 7.0)
    assert line.next_s == pytest.approx(7.03)


def test_frames_beyond_the_queue_are_dropped() -> None:
    line = Line(delay_s=0.0, bits_per_s=1e6)
    for _ in range(MOST_QUEUED + 5):
        line.offer(FRAME, 0.0)
    assert len(arrivals(line, 1e9)) == MOST_QUEUED


def test_idle_line_has_no_next_arrival() -> None:
    assert Line(delay_s=0.0, bits_per_s=1e6).next_s == float("inf")
