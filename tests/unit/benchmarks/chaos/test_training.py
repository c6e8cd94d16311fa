"""What a chaos run reads in the log of a training."""

from pathlib import Path

from appliance.coordinator.commands import Run
from benchmarks.chaos.leftovers import Census
from benchmarks.chaos.training import Training
from waferstream.core.events import ClusterReplaced, Duration, Recovered
from waferstream.core.program.program import ProgramKind

TOOK = Duration(7.0, {"ending": 0.1})


def test_recoveries_of_the_log_are_counted(tmp_path: Path) -> None:
    """By another cluster, with the steps since its checkpoint, and inside one, with one step."""
    training = Training([], [], Census(tmp_path), most_starts=1)
    lines = (
        f"INFO: {ClusterReplaced(TOOK, 2, 60, str(Run(ProgramKind.TRAIN, 67, 68)))}",
        f"WARNING: {Recovered(TOOK, 70)}",
    )
    for line in lines:
        training._take(line, pid=1)
    assert training.course.num_recoveries == 2
    assert training.course.num_repeated_steps == 6 + 1
