"""The states of a protected run, and its story."""

from __future__ import annotations

import pytest

from appliance.recovery.states import FOLLOWING, Parts, State, Story
from waferstream.core.events import SystemsReturned


def test_every_state_is_reached_and_left() -> None:
    """But for the last one, from which nothing follows."""
    reached = frozenset(state for following in FOLLOWING.values() for state in following)
    assert reached == frozenset(State)
    assert [state for state in State if not FOLLOWING[state]] == [State.GIVEN_UP]


def test_state_that_cannot_follow_is_refused() -> None:
    with pytest.raises(AssertionError):
        Story().enter(State.ROLLING_BACK)


def test_time_counts_from_the_failure() -> None:
    """Also if another failure comes before the cluster runs again."""
    now_s = 10.0
    story = Story(lambda: now_s)
    story.enter(State.ABORTING)
    now_s = 11.0
    for state in (State.DECIDING, State.REBUILDING, State.ABORTING):
        story.enter(state)
    now_s = 12.5
    for state in (State.DECIDING, State.REBUILDING, State.ROLLING_BACK, State.RUNNING):
        story.enter(state)
    seconds = "aborting 2.5, deciding 0.0, rebuilding 0.0, rolling back 0.0"
    assert str(story.parts.duration) == f"2.5 s ({seconds})"


def test_events_are_taken_once() -> None:
    story, events = Story(), [SystemsReturned(3, step) for step in (1, 2)]
    for event in events:
        story.tell(event)
    assert story.take() == events
    assert story.take() == []


def test_parts_are_stated_in_their_order() -> None:
    """A part that comes again adds its seconds; time before the first part counts in all."""
    now_s = 0.0
    parts = Parts(lambda: now_s)
    for part, seconds in (("", 0.5), ("ending", 1.0), ("starting", 4.0), ("ending", 0.25)):
        if part:
            parts.begin(part)
        now_s += seconds
    parts.end()
    now_s += 10.0
    assert str(parts.duration) == "5.8 s (ending 1.2, starting 4.0)"
