"""The trace of a run: every role, training, evaluation and checkpoints, on both clocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

import cstorch
from appliance.coordinator.cluster import Cluster
from cstorch.cluster.run_trace import RunTrace
from cstorch.session.saving import save
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)
from tests.support.reports.traces import Trace, read_trace
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.core.errors import ApplianceError
from waferstream.machine.attribution import StepTiming
from waferstream.machine.trace import ATTRIBUTION_OF

SHAPE = Shape(2, servers=2, restarts=1, has_replicas=True)


def train_evaluate_and_save(backend: cstorch.Backend, path: Path) -> None:
    losses(training_step(backend), executor(3, activation_steps=2))
    losses(evaluation_step(backend), executor(1))
    save(backend.session, path, ("model", "optimizer"), {})


def recorded(shape: Shape, limit: int) -> cstorch.ClusterConfig:
    changes = {"record": True, "record_limit": limit}
    return cluster_config(shape).model_copy(update=changes)


@contextmanager
def timings_of(backend: cstorch.Backend) -> Iterator[list[StepTiming]]:
    """Yield a list that has the emulated times of the steps of training at the end of a block."""
    timings: list[StepTiming] = []
    with patch.object(backend.session.timed, "add", wraps=backend.session.timed.add) as add:
        yield timings
    timings.extend(timing for call in add.call_args_list for timing in call.args[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, list[StepTiming]]:
    """The trace of a run, and the emulated times of its training."""
    folder = tmp_path_factory.mktemp("traced")
    with (
        running_backend(cluster_config=recorded(SHAPE, 10_000)) as backend,
        timings_of(backend) as timings,
    ):
        train_evaluate_and_save(backend, folder / "weights.mdl")
        assert backend.write_trace(folder / "trace.json") == []
    return read_trace(folder / "trace.json"), timings


def test_trace_has_a_track_for_every_role(run: tuple[Trace, list[StepTiming]]) -> None:
    roles = {name.partition(" (")[0] for name in run[0].tracks("measured")}
    pairs = {f"{kind}-{number}" for kind in ("wgt", "rpl", "csx") for number in (0, 1)}
    assert roles == {"program", "crd-0", "br-0", "wrk-0", *pairs}


def test_trace_has_training_evaluation_and_checkpoint(run: tuple[Trace, list[StepTiming]]) -> None:
    """The program and its coordinator do it all; nodes compute it; servers write files."""
    trace, _ = run
    program = [each.name for each in trace.of("measured", "program")]
    assert {"compile", "start", "install", "train", "evaluate", "save"} == set(program)
    assert {"run", "results", "install", "save"} <= {e.name for e in trace.of("measured", "crd-0")}
    for server in ("wgt-0", "wgt-1"):
        assert "save" in {each.name for each in trace.of("measured", server)}
    node = trace.of("measured", "csx-0")
    assert {(each.args["mode"], each.args["step"]) for each in node} == {
        ("train", 1), ("train", 2), ("train", 3), ("eval", 1),
    }  # fmt: skip
    steps = [(each.name, each.args["step"]) for each in trace.of("emulated", "steps")]
    assert steps == [("train", 1), ("train", 2), ("train", 3), ("eval", 1)]


def test_slices_are_named_by_module_and_phase(run: tuple[Trace, list[StepTiming]]) -> None:
    """The same words on both clocks."""
    trace, _ = run
    wafer = {each.name for each in trace.of("emulated", "CS wafer")}
    computed = {each.name for each in trace.of("measured", "csx-0")}
    assert wafer == computed
    assert any(name.endswith(" backward") for name in wafer)
    layers = {each.args["layer"] for each in trace.of("emulated", "CS wafer")}
    for track, activity in (("wgt-0", "cast"), ("wgt-0", "update"), ("br-0", "broadcast")):
        names = {each.name for each in trace.of("measured", track)}
        assert names & {f"{layer} {activity}" for layer in layers}


def test_slices_carry_round_bytes_and_attribution(run: tuple[Trace, list[StepTiming]]) -> None:
    trace, _ = run
    streams = [each for each in trace.slices if each.args["activity"] in ("broadcast", "reduce")]
    assert streams
    for each in streams:
        assert each.args["bytes"] > 0
        assert each.args["round"] >= 0
        assert each.args["attribution"] == ATTRIBUTION_OF.get(each.args["activity"], "reduce")


def test_emulated_slices_sum_to_the_reported_attribution(
    run: tuple[Trace, list[StepTiming]],
) -> None:
    """Of every training step, by cause, to the picosecond."""
    trace, timings = run
    spent = trace.attributions()
    assert {("train", timing.step): timing.attribution for timing in timings} == {
        step: found for step, found in spent.items() if step[0] == "train"
    }


def test_trace_keeps_its_limit_and_tells(tmp_path: Path) -> None:
    """The run itself is the same."""
    with running_backend(cluster_config=recorded(Shape(2), 40)) as backend:
        train_evaluate_and_save(backend, tmp_path / "weights.mdl")
        missing = backend.write_trace(tmp_path / "trace.json")
        cut, timed = backend.weights_digest(), backend.session.timed
    with running_backend(cluster_config=cluster_config(Shape(2))) as backend:
        train_evaluate_and_save(backend, tmp_path / "again.mdl")
        assert (backend.weights_digest(), backend.session.timed) == (cut, timed)
    trace = read_trace(tmp_path / "trace.json")
    assert len(missing) == 2
    assert trace.about["missing"] == missing
    assert len(trace.of("emulated")) == 40
    assert len(trace.of("measured")) == 40


def test_trace_tells_of_a_recovery(tmp_path: Path) -> None:
    """Emulated time is whole; the coordinator shows the recovery, the file what is lost with it."""
    shape = Shape(2, restarts=1, faults=("br-0@2:drop",), folder=tmp_path / "faults")
    with (
        running_backend(cluster_config=recorded(shape, 10_000)) as backend,
        timings_of(backend) as timings,
    ):
        losses(training_step(backend), executor(3, activation_steps=3))
        (missing,) = backend.write_trace(tmp_path / "trace.json")
    trace = read_trace(tmp_path / "trace.json")
    (recovery,) = [each for each in trace.of("measured") if each.name == "recover"]
    assert recovery.track == "crd-0 (2)"  # within the job that goes on
    assert trace.about["missing"] == [missing]
    assert list(trace.attributions().values()) == [timing.attribution for timing in timings]


@pytest.mark.parametrize(("error", "times"), [(KeyboardInterrupt(), 0), (ApplianceError("x"), 1)])
def test_a_cluster_is_asked_at_its_end_unless_interrupted(error: BaseException, times: int) -> None:
    """An interrupted one would answer only after its job."""
    cluster = Mock(spec=Cluster)
    RunTrace(9).keep(cluster, error)
    assert cluster.do.call_count == times
