"""What if the appliance were another: how long do jobs wait, how many systems do they need?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from waferstream.management.schedule.simulate import simulate
from waferstream.management.schedule.state import Inventory, Job, Rules
from waferstream.management.schedule.workload import uniform

_DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What users and the owner of an appliance would see."""

    systems: int
    groups: int
    mean_wait_s: float
    """To the first start, as the next two."""
    wait_of_90_percent_s: float
    """Nine of ten jobs wait no longer."""
    longest_wait_s: float
    mean_turnaround_s: float
    utilisation: float
    """Share of the time that systems are held, from the first submission to the last end."""


def outcome(inventory: Inventory, jobs: Sequence[Job], rules: Rules = _DEFAULT_RULES) -> Outcome:
    """Return what would come of jobs on an inventory.

    Raises:
        ValueError: There are no jobs, or one that can never start.
    """
    runs = simulate(inventory, jobs, rules)
    waits_s = sorted(run.started_s - run.job.submitted_s for run in runs)
    systems = sum(len(session.systems) for session in inventory.sessions)
    held_s = sum(
        len(piece.systems) * (piece.ends_s - piece.starts_s) for run in runs for piece in run.pieces
    )
    span_s = max(run.ended_s for run in runs) - min(job.submitted_s for job in jobs)
    return Outcome(
        systems=systems,
        groups=sum(len(session.groups) for session in inventory.sessions),
        mean_wait_s=fmean(waits_s),
        wait_of_90_percent_s=waits_s[(9 * len(waits_s)) // 10],
        longest_wait_s=waits_s[-1],
        mean_turnaround_s=fmean(run.ended_s - run.job.submitted_s for run in runs),
        utilisation=held_s / (systems * span_s),
    )


def fewest_systems(
    jobs: Sequence[Job], mean_wait_s: float, most: int, groups: int, kind: str = "CS-3"
) -> list[Outcome]:
    """Return what was tried to find the fewest systems on which jobs wait no longer, by systems.

    The first of the outcomes with a mean wait of at most ``mean_wait_s`` is the answer; none has,
    if ``most`` systems are too few.

    Raises:
        ValueError: There are no jobs, or one that does not fit on ``most`` systems.
    """
    low, high = max(job.min_num_csx for job in jobs), most
    tried = {high: outcome(uniform(high, groups, kind), jobs)}
    while low < high and tried[high].mean_wait_s <= mean_wait_s:
        middle = (low + high) // 2
        tried[middle] = outcome(uniform(middle, groups, kind), jobs)
        if tried[middle].mean_wait_s <= mean_wait_s:
            high = middle
        else:
            low = middle + 1
    return [tried[systems] for systems in sorted(tried)]
