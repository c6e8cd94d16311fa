"""The watch: who is ended and why, and who is left alone however long it takes."""

import threading
from collections.abc import Mapping
from dataclasses import replace

from appliance.health.pulse import Activity, Pulse
from appliance.health.watch import HealthWatch, Judge, Limits, waiting_for
from waferstream.core.errors import WaferStreamError

LIMITS = Limits(stopped_s=5, stalled_s=60)
WORKING = Pulse(Activity.WORK, 0.5, 0, 51, "WeightsReady from br-0")
STOPPED = replace(WORKING, is_stopped=True)


def waits_for(*peers: str, age_s: float = 1) -> Pulse:
    return Pulse(Activity.WAIT, age_s, 0, 51, "messages", peers)


CHAIN: dict[str, Pulse] = {
    "wgt-0": waits_for("br-0"),
    "br-0": waits_for("csx-0", "csx-1"),
    "csx-0": waits_for("br-0"),
    "csx-1": STOPPED,
    "wrk-0": waits_for("csx-1"),
}


def judge_after(
    seconds: float, pulses: Mapping[str, Pulse | None], limits: Limits = LIMITS
) -> dict[str, WaferStreamError]:
    """The findings after looks at the same pulses, twice a second."""
    judge, found = Judge(limits), dict[str, WaferStreamError]()
    for _ in range(round(2 * seconds)):
        found |= judge.judge(pulses, 0.5)
    return found


def test_stopped_role_is_found_and_not_its_victims() -> None:
    """All others wait, directly or through others; only the stopped role is ended."""
    assert judge_after(4, CHAIN) == {}
    found = judge_after(5, CHAIN)
    assert {role: error.code for role, error in found.items()} == {"csx-1": "role-stopped"}
    assert found["csx-1"].where == "csx-1"


def test_victims_are_those_that_wait_along_the_chain() -> None:
    """Nearest first; a role that waits for two counts for either."""
    assert waiting_for("csx-1", CHAIN) == ["br-0", "wrk-0", "wgt-0", "csx-0"]
    assert waiting_for("wrk-0", CHAIN) == []


def test_role_that_continues_in_time_is_left_alone() -> None:
    """A stop shorter than the limit leaves no trace, however often it happens."""
    judge = Judge(LIMITS)
    for _ in range(5):
        for pulse in [STOPPED] * 8 + [WORKING]:
            assert judge.judge({"csx-1": pulse}, 0.5) == {}


def test_absence_of_the_watch_is_not_that_of_a_role() -> None:
    """A watch that was held up for an hour, as its role was, needs further looks to decide."""
    judge = Judge(LIMITS)
    assert judge.judge({"csx-1": STOPPED}, 0.5) == {}
    assert judge.judge({"csx-1": STOPPED}, 3600) == {}


def test_long_computation_is_no_stop() -> None:
    """A role that handles one message for a minute less a moment is left alone."""
    computing = replace(WORKING, age_s=59.9)
    assert judge_after(30, CHAIN | {"csx-1": computing}) == {}


def test_longest_busy_role_is_the_stalled_one() -> None:
    """Of two that exceed the limit, the one that began first; a longer wait is no stall."""
    pulses = {
        "wgt-0": waits_for("br-0", age_s=200),
        "br-0": replace(WORKING, age_s=70),
        "csx-1": replace(WORKING, activity=Activity.CALL, age_s=80),
        "csx-2": Pulse(Activity.IDLE, 10_000, 0, 0, ""),
    }
    found = judge_after(0.5, pulses)
    assert {role: error.code for role, error in found.items()} == {"csx-1": "role-stalled"}


def test_role_that_waits_for_a_stopped_one_is_not_stalled() -> None:
    """While a role is stopped, another that takes long may be blocked by it."""
    blocked = replace(WORKING, age_s=1000)
    assert judge_after(4, {"csx-0": blocked, "csx-1": STOPPED}) == {}


def test_stop_limit_is_never_longer_than_the_stall_limit() -> None:
    """A stopped role is found before its victims give up."""
    found = judge_after(61, CHAIN, Limits(stopped_s=3600, stalled_s=60))
    assert {role: error.code for role, error in found.items()} == {"csx-1": "role-stopped"}


def test_silent_host_is_found() -> None:
    """The roles on a host that does not answer are lost together."""
    found = judge_after(5, {"csx-0": WORKING, "csx-1": None, "csx-2": None})
    assert {role: error.code for role, error in found.items()} == {
        "csx-1": "host-silent",
        "csx-2": "host-silent",
    }


def test_ended_role_is_not_found() -> None:
    """A process that has ended while it was stopped is for Ray to report."""
    assert judge_after(30, {"csx-1": replace(STOPPED, is_alive=False)}) == {}


def test_watch_ends_what_it_finds() -> None:
    """The thread looks, ends the role, and keeps the reason and the last pulses."""
    ended = threading.Event()
    names: list[str] = []

    def end(role: str) -> None:
        names.append(role)
        ended.set()

    watch = HealthWatch(lambda: dict(CHAIN), end, Limits(stopped_s=0.1, stalled_s=60))
    try:
        assert ended.wait(10)
    finally:
        watch.close()
        watch.close()
    assert set(names) == {"csx-1"}
    assert watch.findings["csx-1"].code == "role-stopped"
    assert watch.look() == CHAIN
