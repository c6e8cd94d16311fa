"""Waits for messages on their way between hosts; test_stragglers has their way to a summary."""

import time

import pytest

from appliance.health.link_waits import LinkWaits, between_hosts, longest_waits
from waferstream.core.messages.messages import Envelope, WeightsReleased
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.role import Job, Report

HOSTS = {"br-0": "10.0.0.1", "wgt-0": "10.0.0.1", "br-1": "10.0.0.2", "csx-0": "10.0.0.2"}
S = 10**9


def wait_s(begin_s: float, sent_s: float) -> dict[str, float]:
    """A wait that has begun some seconds ago, for a message that was sent some seconds ago."""
    waits = LinkWaits(Job(ProgramKind.TRAIN, 1, 1))
    sent_ns = time.time_ns() - round(sent_s * S)
    message = Envelope("br-0", "br-1", WeightsReleased(1, 0, 0), sent_ns=sent_ns)
    waits.note(time.perf_counter_ns() - round(begin_s * S), message)
    return waits.add_to(Report("br-1")).link_waits


def test_link_is_waited_for_once_the_message_is_sent() -> None:
    """Before, the role waits for the sender."""
    assert wait_s(begin_s=9000, sent_s=3000)["br-0"] == pytest.approx(3000, abs=500)


def test_wait_is_never_longer_than_the_role_has_waited() -> None:
    """A message may have been on its way while the role did other things."""
    assert wait_s(begin_s=3000, sent_s=9000)["br-0"] == pytest.approx(3000, abs=500)


def test_clock_of_the_sender_may_be_ahead() -> None:
    assert wait_s(begin_s=9000, sent_s=-3000) == {}


def test_message_of_the_same_host_is_no_wait_for_a_link() -> None:
    waits = LinkWaits(Job(ProgramKind.TRAIN, 1, 1))
    waits.note(0, Envelope("br-0", "br-1", WeightsReleased(1, 0, 0)))
    assert waits.add_to(Report("br-1")).link_waits == {}


def test_trace_keeps_as_many_waits_as_it_may() -> None:
    waits = LinkWaits(Job(ProgramKind.TRAIN, 1, 2, trace_limit=1))
    for step in (1, 2):
        message = Envelope("br-0", "br-1", WeightsReleased(step, 0, 0), sent_ns=1)
        waits.note(time.perf_counter_ns() - S, message)
    report = waits.add_to(Report("br-1", intervals=[Interval("add", 0, 1)]))
    assert [(each.activity, each.step) for each in report.intervals] == [("add", 0), ("link", 1)]
    assert report.intervals[1].detail == "br-0"
    assert report.num_lost == 1


def test_waits_are_named_by_hosts() -> None:
    """Those of two senders of a host are one link; those within a host are none."""
    links = [Interval("link", 0, S, detail=sender) for sender in ("br-0", "csx-0")]
    waits = {"br-0": 1.0, "wgt-0": 2.0, "csx-0": 4.0}
    report = between_hosts(
        Report("br-1", intervals=[Interval("add", 0, 1), *links], link_waits=waits), HOSTS
    )
    assert report.link_waits == {"10.0.0.1 to 10.0.0.2": 3.0}
    assert [each.detail for each in report.intervals] == ["", "br-0, 10.0.0.1 to 10.0.0.2"]


def test_link_counts_for_the_role_that_waits_longest() -> None:
    reports = [Report("a", link_waits={"x": 1.0, "y": 2.0}), Report("b", link_waits={"x": 3.0})]
    assert longest_waits(reports) == {"x": 3.0, "y": 2.0}
