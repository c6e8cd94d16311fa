"""What a chaos run reads in the log of a training."""

from pathlib import Path

from appliance.coordinator.commands import Run
from appliance.recovery.restarts import RECOVERED
from benchmarks.chaos.leftovers import Census
from benchmarks.chaos.training import Training
from waferstream.core.program.program import ProgramKind


def test_recoveries_of_the_log_are_counted(tmp_path: Path) -> None:
    """By another cluster, with the steps since its checkpoint, and inside one, with one step."""
    training = Training([], [], Census(tmp_path), most_starts=1)
    lines = (
        "INFO: " + RECOVERED % ("7.0 s (ending 0.1)", 2, 60, Run(ProgramKind.TRAIN, 67, 68)),
        "WARNING: Recovery: recovered in 0.1 s; step 70 runs again",
    )
    for line in lines:
        training._take(line, pid=1)
    assert training.course.num_recoveries == 2
    assert training.course.num_repeated_steps == 6 + 1
