"""The restless schedule of the benchmark ends each job once."""

from pathlib import Path

from benchmarks.appliance.restless import Restless
from waferstream.management.schedule.actions import Pause, Resize
from waferstream.management.schedule.state import (
    Inventory,
    Job,
    Rules,
    RunTime,
    Session,
    System,
    Usage,
)
from waferstream.management.schedule.state import Job as State


def running(name: str, left: float, *systems: str) -> State:
    """A job of two systems that runs."""
    run_times = {"CS-2": RunTime(((1, 100.0), (2, 60.0)))}
    return Job(
        name=name, user="ann", submitted_s=0.0, run_times=run_times, num_csx=2, left=left,
        holds=systems, group=f"group-{name}",
    )  # fmt: skip


def test_each_job_is_ended_once_it_has_made_steps(tmp_path: Path) -> None:
    """In turns by a pause and by half of its systems, and never again, whoever is killed."""
    systems = tuple(System(f"s{index}", "CS-2") for index in range(4))
    parts = Inventory((Session("", systems, ("group-a", "group-b")),))
    jobs = [running("a", 0.5, "s0", "s1"), running("b", 0.8, "s2", "s3")]
    restless = Restless(tmp_path)
    about = (Usage(), Rules())
    ends = [
        each
        for each in restless.decide(10.0, parts, jobs[:2], *about)
        if isinstance(each, Pause | Resize)
    ]
    assert [type(each) for each in ends] == [Pause, Resize]
    assert ends[1] == Resize("b", ("s2",))
    again = Restless(tmp_path).decide(11.0, parts, jobs[:2], *about)
    assert not [each for each in again if isinstance(each, Pause | Resize)]
