"""Figures of a chaos run from what happened in it."""

import os
from pathlib import Path

from appliance.faults.plan import Fault, FaultLog
from benchmarks.chaos.__main__ import Hit, describe, hits_of, outcome, step_seconds
from benchmarks.chaos.training import Course, Kill

KILLED = Fault(role="csx-0", step=11, kind="kill")
SLOW = Fault(role="br-0", step=16, kind="slow")
COURSE = Course(
    # A second a step; twelve seconds are lost at step 11, two at step 16, 30 at step 20.
    reported=[(101, 1), (105, 5), (110, 10), (127, 15), (134, 20), (169, 25)],
    kills=[(135.0, Kill("driver", 20))],
    starts=[90, 136],
    num_recoveries=1,
    num_repeated_steps=6,
    digest="abc",
)


def test_recovery_ends_with_the_next_reported_step(tmp_path: Path) -> None:
    """Faults of roles and kills from outside, in the order of time; others did not happen."""
    log = FaultLog(tmp_path)
    for fault, at in ((KILLED, 112), (SLOW, 128)):
        assert log.claim(fault)
        (path,) = (p for p in tmp_path.iterdir() if p.name.startswith(fault.role))
        os.utime(path, (at, at))
    never = Fault(role="csx-1", step=90, kind="hang")
    assert hits_of(COURSE, [SLOW, KILLED, never], log) == [
        Hit("csx-0", "kill", 11, 15.0),
        Hit("br-0", "slow", 16, 6.0),
        Hit("driver", "kill", 20, 34.0),
    ]


def test_faults_between_two_reports_are_distinguished(tmp_path: Path) -> None:
    """Steps whose gradients arrive end a recovery; those that are repeated do not."""
    log = FaultLog(tmp_path)
    for fault, at in ((KILLED, 112), (SLOW, 124)):
        assert log.claim(fault)
        (path,) = (p for p in tmp_path.iterdir() if p.name.startswith(fault.role))
        os.utime(path, (at, at))
    arrived = ((111, 11), (113, 10), (114, 11), (116, 12), (123, 13), (125, 14), (136, 22))
    lines = [f"{at} {step}\n" for at, step in arrived]
    (tmp_path / "progress").write_text("".join(lines))
    assert hits_of(COURSE, [SLOW, KILLED], log) == [
        Hit("csx-0", "kill", 11, 4.0),
        Hit("br-0", "slow", 16, 1.0),
        Hit("driver", "kill", 20, 33.0),
    ]


def test_time_after_a_kill_ends_with_the_next_fault(tmp_path: Path) -> None:
    """A step goes on after the kill; the next fault comes before a new one is done."""
    log = FaultLog(tmp_path)
    assert log.claim(SLOW)
    (path,) = tmp_path.iterdir()
    os.utime(path, (150, 150))
    (tmp_path / "progress").write_text("136 22\n")
    hits = hits_of(COURSE, [SLOW], log)
    assert hits == [Hit("driver", "kill", 20, 14.0), Hit("br-0", "slow", 16, 19.0)]


def test_progress_is_kept_in_the_order_of_time(tmp_path: Path) -> None:
    log = FaultLog(tmp_path)
    assert log.progress() == []
    log.note_progress(1)
    log.note_progress(2)
    assert [step for _, step in log.progress()] == [1, 2]


def test_figures_compare_with_the_training_without_faults() -> None:
    """Goodput is the useful part of the time; equal weights and no leftovers are stated."""
    hits = [Hit("csx-0", "kill", 11, 15.0), Hit("driver", "kill", 20, 34.0)]
    assert step_seconds(COURSE) == 1.4  # the median of 1, 1, 3.4, 1.4 and 7
    figures = outcome(COURSE, hits, 2, "abc", {})
    assert figures["is_equal"]
    assert figures["by_kind"] == {"kill": {"count": 2, "median": 24.5, "max": 34.0}}
    assert figures["by_role"]["csx-0"]["max"] == 15.0
    assert figures["goodput"] == 25 * 1.4 / 68
    assert figures["goodput_at_a_fault_a_minute"] == 60 / (60 + 24.5)
    assert figures["steps_repeated"] == 6
    assert not outcome(COURSE, hits, 2, "abd", {})["is_equal"]
    assert "is equal: True" in describe(figures)


def test_training_without_a_hit_has_figures() -> None:
    """No fault: no recovery, and nothing is lost to it."""
    figures = outcome(COURSE, [], 0, "abc", {})
    assert figures["goodput_at_a_fault_a_minute"] == 1.0
    assert figures["recovery_s"]["count"] == 0
