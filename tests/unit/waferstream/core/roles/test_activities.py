"""Activities in measured time: a log keeps as many as it may, and counts the others."""

import pytest

from tests.support.programs.small_programs import program
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.activities import ActivityLog, Interval, Place, earliest, place_of


def test_log_keeps_its_limit_and_counts_the_rest() -> None:
    log = ActivityLog(limit=2)
    for number in range(5):
        with log.during("load", Place(step=number), num_bytes=7):
            pass
    assert [interval.step for interval in log.intervals] == [0, 1]
    assert log.num_lost == 3
    assert all(each.start_ns <= each.end_ns for each in log.intervals)


def test_log_without_a_limit_keeps_and_counts_nothing() -> None:
    log = ActivityLog()
    with log.during("load"):
        pass
    assert (log.is_on, log.intervals, log.num_lost) == (False, [], 0)


def test_log_keeps_what_raises() -> None:
    """The time until then is known, whatever happened."""
    log = ActivityLog(limit=1)
    with pytest.raises(ZeroDivisionError), log.during("load"):
        1 / 0  # noqa: B018
    assert [interval.activity for interval in log.intervals] == ["load"]


def test_earliest_activities_of_all_roles_are_kept() -> None:
    late, early, middle = (Interval("load", start, start + 1) for start in (9, 1, 5))
    found = [("csx-0", late), ("csx-1", early), ("csx-0", middle)]
    assert earliest(found, 2) == ({"csx-0": [middle], "csx-1": [early]}, 1)
    assert earliest(found, 3) == ({"csx-0": [late, middle], "csx-1": [early]}, 0)


def test_place_of_a_bucket_is_its_segment() -> None:
    tiny = program()
    bucket = plan_streams(tiny, 1).gradients[0]
    segment = tiny.segments[bucket.segment]
    expected = Place(tiny.kind, 4, 2, segment.layer, segment.phase)
    assert place_of(tiny, bucket, 4, 2) == expected
