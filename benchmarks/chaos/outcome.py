"""What a chaos run shows: recovery by role and kind, steps repeated, goodput, and what was left."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from appliance.faults.plan import Fault, FaultLog
from benchmarks.chaos.training import OUTSIDE, Course
from waferstream.core.units import aligned

_MINUTE_S = 60.0
_FOLDER = re.compile(r"/\S*/")


@dataclass(frozen=True)
class Hit:
    """A fault that happened, and the seconds until the step in progress was done.

    After a hit on a process that is no role, steps go on until it is noticed: then it is the
    longest time without a new step until the next fault.
    """

    target: str
    kind: str
    step: int
    recovery_s: float


def hits_of(course: Course, faults: Iterable[Fault], log: FaultLog) -> list[Hit]:
    """Return everything that happened in a course, in the order of time."""
    times: list[tuple[float, str, str, int]] = [
        (at, fault.role, fault.kind, fault.step) for fault in faults for at in log.happened(fault)
    ]
    times += [(at, kill.target, kill.kind, kill.step) for at, kill in course.kills]
    times.sort()
    ends = [*[at for at, *_ in times[1:]], math.inf]
    news = _new_steps(course, log)
    hits = []
    for (at, target, kind, step), end in zip(times, ends, strict=True):
        later = [new for new in news if new >= at]
        if later:
            until = [new for new in later[1:] if new < end] if target in OUTSIDE else []
            if target in OUTSIDE and later[0] < end < later[-1]:
                until.append(end)  # what is still missing then is the time of the next fault
            longest = max(b - a for a, b in itertools.pairwise([at, later[0], *until]))
            hits.append(Hit(target, kind, step, longest))
    return hits


def _new_steps(course: Course, log: FaultLog) -> list[float]:
    """Return the times at which a step was done that had not been done before.

    A step is done when gradients of the next one arrive, or when it is reported.
    """
    done = [(at, step) for at, step in course.reported]
    done += [(at, step - 1) for at, step in log.progress()]
    highest, times = 0, []
    for at, step in sorted(done):
        if step > highest:
            highest = step
            times.append(at)
    return times


def step_seconds(course: Course) -> float:
    """Return the median seconds of a step between two reports of one start."""
    pairs = zip(course.reported, course.reported[1:], strict=False)
    return median((b - a) / (after - before) for (a, before), (b, after) in pairs if after > before)


def outcome(
    course: Course, hits: Sequence[Hit], num_faults: int, digest: str, left: dict[str, list[str]]
) -> dict[str, Any]:
    """Return the figures of a run.

    Args:
        course: The training under faults.
        hits: What happened in it.
        num_faults: How many faults were planned.
        digest: The weights without faults.
        left: What was left behind.
    """
    recoveries = [hit.recovery_s for hit in hits]
    (first_s, _), (last_s, last_step) = course.reported[0], course.reported[-1]
    useful_s = last_step * step_seconds(course)
    return {
        "faults_planned": num_faults,
        "faults_happened": len(hits),
        "recovery_s": _spread(recoveries),
        "by_kind": {kind: _spread(own) for kind, own in _grouped(hits, "kind").items()},
        "by_role": {role: _spread(own) for role, own in _grouped(hits, "target").items()},
        "starts_of_the_command": len(course.starts),
        "recoveries_without_a_start": course.num_recoveries,
        "steps": last_step,
        "steps_repeated": course.num_repeated_steps,
        "goodput": min(1.0, useful_s / (last_s - first_s)),
        "goodput_at_a_fault_a_minute": _MINUTE_S / (_MINUTE_S + mean(recoveries or [0.0])),
        "digest": course.digest,
        "digest_without_faults": digest,
        "is_equal": course.digest == digest,
        "left_behind": left,
        "errors": sorted({_FOLDER.sub("", error) for error in course.errors}),
    }


def describe(figures: dict[str, Any]) -> str:
    """Return the figures as text for a terminal."""
    rows = [("fault", "hits", "median s", "max s")]
    for group in ("by_kind", "by_role"):
        for name, spread in sorted(figures[group].items()):
            rows.append((name, *(f"{spread[key]:g}" for key in ("count", "median", "max"))))
    lines = [*aligned(rows), ""]
    for name in (
        "faults_happened", "starts_of_the_command", "recoveries_without_a_start", "steps",
        "steps_repeated", "goodput", "goodput_at_a_fault_a_minute", "left_behind", "digest",
        "digest_without_faults", "is_equal",
    ):  # fmt: skip
        figure = figures[name]
        shown = f"{figure:.1%}" if isinstance(figure, float) else figure
        lines.append(f"{name.replace('_', ' ')}: {shown}")
    return "\n".join(lines)


def _grouped(hits: Sequence[Hit], name: str) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for hit in hits:
        groups.setdefault(getattr(hit, name), []).append(hit.recovery_s)
    return groups


def _spread(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"count": 0, "median": 0.0, "max": 0.0}
    return {
        "count": len(values),
        "median": round(median(values), 2),
        "max": round(max(values), 2),
    }
