"""Jobs of several users on one appliance, and what is wrong with them when all have ended."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.appliance.site import Site
from benchmarks.appliance.small_job import Alone, SmallJob, run_alone
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import ReadEvents
from waferstream.management.model.workflow import Stage, Workflow

_POLL_S = 0.5
_MOST_S = 3600.0
_STARTED = "Command: "  # the first line of each process in the log of a run
_ENDED = {"resize": "resized", "pause": "paused"}


@dataclass(frozen=True)
class Load:
    """Jobs by workflow, and what each is alone."""

    jobs: Mapping[str, SmallJob]
    alone: Mapping[int, Alone]


def jobs_in(folder: Path, count: int, num_steps: int, seeds: int) -> list[SmallJob]:
    """Write the files of some jobs; they take turns in their seeds."""
    jobs = [
        SmallJob(folder / f"job-{index}", 1 + index % seeds, num_steps) for index in range(count)
    ]
    for job in jobs:
        job.write()
    return jobs


def all_alone(folder: Path, num_steps: int, seeds: int) -> dict[int, Alone]:
    """Run a job of each seed alone."""
    jobs = [SmallJob(folder / f"alone-{seed}", seed, num_steps) for seed in range(1, seeds + 1)]
    for job in jobs:
        job.write()
    return {job.seed: run_alone(job) for job in jobs}


def wait_for_all(site: Site) -> list[Workflow]:
    """Wait until all workflows have ended; return them."""
    deadline_s = time.monotonic() + _MOST_S
    while time.monotonic() < deadline_s:
        workflows = site.workflows()
        if all(each.stage is Stage.ENDED for each in workflows):
            return workflows
        time.sleep(_POLL_S)
    raise TimeoutError(f"after {_MOST_S} s some workflows have not ended")


def findings(site: Site, load: Load, workflows: Sequence[Workflow]) -> dict[str, Any]:
    """Count what has become of the jobs; what should be 0 is named for what it is."""
    by_name = {each.name: each for each in workflows}
    results = {name: _result(site, by_name.get(name)) for name in load.jobs}
    hashes = {name: load.alone[job.seed].weights_sha256 for name, job in load.jobs.items()}
    launches = {name: _starts(site, name) for name in load.jobs}
    return {
        "jobs": len(load.jobs),
        "succeeded": sum(each.result is Phase.SUCCEEDED for each in workflows),
        "lost": sum(name not in by_name for name in load.jobs),
        "doubled": len(workflows) - len(load.jobs.keys() & by_name.keys()),
        "started_twice": sum(
            launches[name] > by_name[name].attempt for name in launches.keys() & by_name.keys()
        ),
        "other_hash": sum(results[name] != hashes[name] for name in load.jobs),
        "launches": sum(launches.values()),
        **_ends(site, list(load.jobs)),
    }


def _result(site: Site, workflow: Workflow | None) -> str | None:
    """Return the hash that a workflow has ended with."""
    if workflow is None:
        return None
    path = site.folders.model_dir(workflow.name) / "run_summary.json"
    if not path.is_file():
        return None
    return str(json.loads(path.read_text())["weights_sha256"])


def _starts(site: Site, name: str) -> int:
    """Return how many processes have begun the run of a workflow."""
    logs = site.folders.model_dir(name).glob("2*/run.log")
    return sum(path.read_text().count(_STARTED) for path in logs)


def _ends(site: Site, names: Sequence[str]) -> dict[str, int]:
    """Return how often jobs were ended in between, and how many were not even once."""
    found: Counter[str] = Counter()
    untouched = 0
    for name in names:
        facts = [each.fact for each in site.client.do(ReadEvents(name=name, limit=10_000))]
        aims = [str(fact.aim) for fact in facts if fact.kind == "asked"]
        found.update(_ENDED.get(aim, aim) for aim in aims)
        untouched += not aims
    return {"resized": found["resized"], "paused": found["paused"], "never_ended": untouched}
