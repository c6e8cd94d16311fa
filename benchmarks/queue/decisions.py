"""How much processor time a decision takes with a thousand jobs in the queue."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from time import thread_time

from benchmarks.queue.figures import decision_times
from waferstream.management.schedule.actions import Start
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.state import Job, RunTime, Usage
from waferstream.management.schedule.workload import uniform

_SYSTEMS = 192
_GROUPS = 48
_QUEUED = 1000
_ROUNDS = 200


def measure_decisions() -> dict[str, float]:
    """Return the times of decisions, each after a job has ended, with all reasons and forecasts."""
    random, inventory = Random(0), uniform(_SYSTEMS, _GROUPS)
    usage = Usage(0.0, {f"user-{number}": 1e4 * number for number in range(20)})
    jobs = {str(number): _job(str(number), random) for number in range(_QUEUED + _GROUPS)}
    for action in decide(0.0, inventory, list(jobs.values()), usage):
        if isinstance(action, Start):
            given = jobs[action.job]
            jobs[action.job] = replace(given, holds=action.systems, group=action.group)
    running = [name for name, job in jobs.items() if job.runs]
    times_s = []
    for round_ in range(_ROUNDS):
        ended = running[round_ % len(running)]
        rest = [job for name, job in jobs.items() if name != ended]
        start_s = thread_time()
        decide(float(round_), inventory, rest, usage)
        times_s.append(thread_time() - start_s)
    return decision_times(times_s)


def _job(name: str, random: Random) -> Job:
    """Return a job of a random size, length, user and priority."""
    most = 2 ** random.randrange(6)
    return Job(
        name=name,
        user=f"user-{random.randrange(20)}",
        submitted_s=0.0,
        run_times={"CS-3": RunTime(((most, random.lognormvariate(8.0, 1.5)),))},
        num_csx=most,
        min_num_csx=max(1, most // 4),
        priority=random.choice((199, 299, 399)),
    )
