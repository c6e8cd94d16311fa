"""Measure an appliance of many users.

    python -m benchmarks.appliance --jobs 20 --users 4 --kill 50 --json results/appliance.json

Small jobs are submitted at once. Each is resized or paused at least once between two steps
(``restless``), and must end with the hash that it has alone. First the way of a job from its
command to the line of its first step is compared with the same command without a management, in
turns on an otherwise idle appliance.

With ``--kill`` the management is killed (SIGKILL) at random moments while the jobs run, and started
again. No job may be lost, doubled or started twice; the seconds are those from its start until it
answers, beside those of a processor, since the jobs leave it little of one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.appliance.load import Load, all_alone, findings, jobs_in, wait_for_all
from benchmarks.appliance.site import Site
from benchmarks.appliance.small_job import SmallJob, seconds_to_first_step
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_SEEDS = 2
_KILLS_EVERY_S = 4.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its JSON."""
    given = _parse(argv)
    result = new_result("Is an appliance of many users one answer, and does it lose nothing?")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = all_alone(folder, given.steps, _SEEDS)
        site = Site(folder / "site", given.systems, given.groups, given.users)
        try:
            site.start()
            found: dict[str, Any] = {}
            if given.rounds:
                found["first_step"] = _first_steps(site, folder, given.steps, given.rounds)
            began_s, before = time.monotonic(), {each.name for each in site.workflows()}
            jobs = jobs_in(folder, given.jobs, given.steps, _SEEDS)
            load = Load({site.submit(job, user): job for user, job in enumerate(jobs)}, alone)
            if given.kill:
                found["back"] = _killed(site, given.kill, random.Random(given.seed))
            ended = [each for each in wait_for_all(site) if each.name not in before]
            found |= {"seconds": time.monotonic() - began_s, **findings(site, load, ended)}
        finally:
            site.stop()
    print(found)
    if given.json:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        write_json(given.json, {**result, "options": options, **found})


def _first_steps(site: Site, folder: Path, num_steps: int, rounds: int) -> dict[str, Any]:
    """Return the seconds to the first step, submitted and embedded, in turns."""
    seconds: dict[str, list[float]] = {"embedded": [], "submitted": []}
    flags: Mapping[str, Sequence[str]] = {
        "embedded": (),
        "submitted": (f"--mgmt_address={site.address}",),
    }
    for index in range(rounds):
        for arm, found in seconds.items():
            job = SmallJob(folder / f"{arm}-{index}", 1, num_steps)
            job.write()
            env = {"WAFERSTREAM_TOKEN": site.tokens[0]}
            found.append(seconds_to_first_step(job, flags[arm], env))
    over_s = [b - a for a, b in zip(*seconds.values(), strict=True)]
    return {**seconds, "over_embedded_s": statistics.median(over_s)}


def _killed(site: Site, count: int, chance: random.Random) -> dict[str, Any]:
    """Kill the management so often, at random moments; return the seconds until it is back."""
    back = []
    for _ in range(count):
        time.sleep(chance.uniform(0, _KILLS_EVERY_S))
        site.kill()
        back.append(site.start())
    seconds, processor_s = zip(*back, strict=True)
    medians = {"median_s": statistics.median(seconds), "most_s": max(seconds)}
    return {**medians, "processor_s": statistics.median(processor_s), "kills": count}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--jobs", type=positive, default=20, help="jobs (default: 20)")
    parser.add_argument("--users", type=positive, default=4, help="users (default: 4)")
    parser.add_argument("--kill", type=int, default=0, help="kill the management so often")
    parser.add_argument("--steps", type=positive, default=40, help="steps of a job (default: 40)")
    parser.add_argument("--systems", type=positive, default=4, help="CS systems (default: 4)")
    parser.add_argument("--groups", type=positive, default=2, help="MemoryX groups (default: 2)")
    parser.add_argument("--rounds", type=int, default=3, help="of the way to the first step")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
