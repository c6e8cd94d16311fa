"""The coordinator: results per step, weights, checkpoints, and losses that are not finite."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from appliance.coordinator.commands import (
    HashWeights,
    LoadWeights,
    ReadActivities,
    ReadPeakBytes,
    ReadWeights,
    RestoreCheckpoint,
    Run,
    SaveCheckpoint,
)
from appliance.coordinator.coordinator import Coordinator
from appliance.elaboration.elaborate import ClusterSize
from tests.support.errors import raises
from tests.support.programs.kernels import run_eagerly
from tests.support.roles.local_machine import (
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from waferstream.compiler.compiled import Compiled
from waferstream.core.digest import weights_digest
from waferstream.core.errors import ApplianceNanError, ApplianceRuntimeServerError, CheckpointError
from waferstream.core.messages.watch import Watch
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.machine.record import Record

ROWS, NUM_MICRO_BATCHES = 10, 5
SIZE = ClusterSize(2, num_servers=2)
Batches = list[dict[str, torch.Tensor]]
source = partial(random_batches, 3, ROWS)


@cache
def programs() -> list[Compiled]:
    model, batch = Regression(), source()[0]
    return [
        compile_model(model, batch, NUM_MICRO_BATCHES, trains=trains) for trains in (True, False)
    ]


def cluster(
    size: ClusterSize = SIZE,
    feed: Callable[[], Batches] = source,
    lr: float = 0.1,
    record: Record | None = None,
    **limits: float,
) -> Coordinator:
    """A cluster with a training program and an evaluation program."""
    model = Regression()
    train, evaluate = programs()
    installed = installation(train, feed, sgd(model, lr, **limits), size)
    running = start(installed, model, size, record=record)
    running.do(Install(installation(evaluate, feed, None, size)))
    return running


def micro_batch_losses(batch: Mapping[str, torch.Tensor]) -> list[float]:
    pieces = [{k: t[2 * i : 2 * i + 2] for k, t in batch.items()} for i in range(NUM_MICRO_BATCHES)]
    return [float(run_eagerly(Regression(), piece, FP32, 1)[0]) for piece in pieces]


def test_step_result_is_the_mean_over_micro_batches() -> None:
    """It is summed in index order, so that it is the same for every cluster."""
    losses = micro_batch_losses(source()[0])
    for size in (ClusterSize(1), SIZE, ClusterSize(5, lanes=2)):
        (result,) = cluster(size).do(Run(ProgramKind.TRAIN, 1, 1))
        assert result.values == (sum(losses) / NUM_MICRO_BATCHES,)
        assert result.step == 1


def test_steps_read_the_batch_of_their_number() -> None:
    """Step s of a training reads global batch s - 1, also when it is the first of a job."""
    (result,) = cluster().do(Run(ProgramKind.EVAL, 3, 3))
    assert result.values == (sum(micro_batch_losses(source()[2])) / NUM_MICRO_BATCHES,)


def test_gradient_norm_is_reported_with_clipping() -> None:
    """The norm is that before clipping; None without clipping."""
    plain = cluster().do(Run(ProgramKind.TRAIN, 1, 2))
    assert [result.gradient_norm for result in plain] == [None, None]
    clipped = cluster(max_gradient_norm=0.1).do(Run(ProgramKind.TRAIN, 1, 2))
    assert all((result.gradient_norm or 0.0) > 0.1 for result in clipped)
    (evaluated,) = cluster(max_gradient_norm=0.1).do(Run(ProgramKind.EVAL, 1, 1))
    assert evaluated.gradient_norm is None


def test_every_step_has_an_emulated_time() -> None:
    """The time of every step is positive."""
    running = cluster()
    timings = [result.timing for result in running.do(Run(ProgramKind.TRAIN, 1, 3))]
    assert all(timing and timing.end_ps > timing.start_ps for timing in timings)


def poisoned() -> Batches:
    batches = source()
    batches[1]["x"][3] = float("nan")
    return batches


@pytest.mark.parametrize("kind", ProgramKind)
def test_nan_loss_is_an_error(kind: ProgramKind) -> None:
    """The error has kind, step and value; earlier steps are unaffected."""
    running = cluster(feed=poisoned)
    running.do(Run(kind, 1, 1))
    with raises(ApplianceNanError, "loss-not-finite") as error:
        running.do(Run(kind, 2, 3))
    assert f"{kind} loss of step 2" in error.value.what
    assert error.value.value == "nan"
    assert error.value.remedy


def test_check_finite_can_be_off() -> None:
    """Without the check a run continues after a NaN."""
    results = cluster(feed=poisoned).do(Run(ProgramKind.TRAIN, 1, 3, check_finite=False))
    assert [result.values[0] == result.values[0] for result in results] == [True, False, False]


def test_infinite_loss_is_an_error() -> None:
    """An infinite loss is not finite either."""
    with raises(ApplianceNanError, "loss-not-finite"):
        cluster(feed=huge, lr=1e30).do(Run(ProgramKind.TRAIN, 1, 3))


def huge() -> Batches:
    return [{"x": b["x"], "y": b["y"] * 1e18} for b in source()]


def test_masters_are_the_loaded_weights() -> None:
    """Masters equal the loaded weights; the digest is computed from them."""
    running = cluster()
    expected = {name: p.detach() for name, p in Regression().named_parameters()}
    masters = running.do(ReadWeights(list(expected)))
    assert masters.keys() == expected.keys()
    assert all(torch.equal(torch.from_numpy(masters[name]), expected[name]) for name in masters)
    assert running.do(HashWeights()) == weights_digest(masters.items())


def test_ended_cluster_refuses_calls() -> None:
    """Calls after shutdown are errors; shutdown may be called twice."""
    running = cluster()
    running.shutdown()
    running.shutdown()
    for command in (HashWeights(), Run(ProgramKind.TRAIN, 1, 1)):
        with raises(ApplianceRuntimeServerError, "cluster-ended"):
            running.do(command)


def test_only_training_changes_the_digest() -> None:
    """Evaluation leaves the weights unchanged."""
    running = cluster()
    before = running.do(HashWeights())
    running.do(Run(ProgramKind.EVAL, 1, 2))
    assert running.do(HashWeights()) == before
    running.do(Run(ProgramKind.TRAIN, 1, 1))
    assert running.do(HashWeights()) != before


def test_checkpoint_is_restored_by_another_cluster(tmp_path: Path) -> None:
    """Saved by two servers and restored by three, training continues with equal weights."""
    path = tmp_path / "checkpoint.mdl"
    first = cluster()
    first.do(Run(ProgramKind.TRAIN, 1, 1))
    first.do(SaveCheckpoint(path, ["model", "optimizer"], {"global_step": 1}))
    second = cluster(ClusterSize(3, num_servers=3))
    second.do(RestoreCheckpoint(path, ["model", "optimizer"], strict=True))
    assert second.do(HashWeights()) == first.do(HashWeights())
    first.do(Run(ProgramKind.TRAIN, 2, 3))
    second.do(Run(ProgramKind.TRAIN, 2, 3))
    assert second.do(HashWeights()) == first.do(HashWeights())


def test_restore_of_a_missing_state_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "checkpoint.mdl"
    running = cluster()
    running.do(SaveCheckpoint(path, ["optimizer"], {}))
    with raises(CheckpointError, "no-such-tensor") as caught:
        running.do(RestoreCheckpoint(path, ["model"], strict=True))
    assert caught.value.where == str(path)


def test_peak_bytes_are_those_of_the_nodes() -> None:
    """Peaks are those of the last job, by kind."""
    running = cluster()
    running.do(Run(ProgramKind.TRAIN, 1, 1))
    assert running.do(ReadPeakBytes()).keys() == {"csx-0", "csx-1"}
    trained = running.do(ReadPeakBytes())["csx-0"]
    running.do(Run(ProgramKind.EVAL, 1, 1))
    evaluated = running.do(ReadPeakBytes())["csx-0"]
    assert "gradients" in trained
    assert "gradients" not in evaluated


def test_activities_of_all_jobs_are_measured_by_role() -> None:
    """Those of the coordinator, too; nothing is kept without a record."""
    running = cluster(record=Record())
    running.do(Run(ProgramKind.TRAIN, 1, 1))
    running.do(Run(ProgramKind.EVAL, 1, 1))
    measured = running.do(ReadActivities()).measured
    kinds = {role: {interval.activity for interval in of} for role, of in measured.items()}
    assert kinds == {
        "crd-0": {"install", "run", "results"},
        "csx-0": {"compute"},
        "csx-1": {"compute"},
        "br-0": {"broadcast", "reduce", "add"},
        "wgt-0": {"cast", "sum", "update"},
        "wgt-1": {"cast", "sum", "update"},
        "wrk-0": {"load"},
    }
    assert {interval.place.mode for interval in measured["csx-0"]} == {"train", "eval"}
    silent = cluster()
    silent.do(Run(ProgramKind.TRAIN, 1, 1))
    assert not any(silent.do(ReadActivities()).measured.values())


def test_measured_activities_keep_the_limit_of_a_record() -> None:
    """The first ones stay, of all roles together; the others are counted."""
    whole, cut = (cluster(record=Record(limit)) for limit in (10_000, 30))
    for running in (whole, cut):
        running.do(Run(ProgramKind.TRAIN, 1, 2))
    found, kept = whole.do(ReadActivities()), cut.do(ReadActivities())
    assert sum(map(len, kept.measured.values())) <= 30 + len(kept.measured["crd-0"])
    assert found.num_lost == 0 < kept.num_lost


def bad_third_micro_batch() -> Batches:
    found = source()
    found[1]["x"][4:6] = torch.nan
    return found


@pytest.mark.parametrize("size", [ClusterSize(1), SIZE, ClusterSize(5, lanes=2)])
def test_watch_names_the_first_value_that_is_not_finite(size: ClusterSize) -> None:
    """Step, layer and micro-batch are the same for every cluster, and the system is named."""
    running = cluster(size, feed=bad_third_micro_batch)
    with raises(ApplianceNanError, "value-not-finite") as caught:
        running.do(Run(ProgramKind.TRAIN, 1, 3, watch=Watch(finite_to=3)))
    where = caught.value.where or ""
    assert where.startswith("step 2, layer layers.0, micro-batch 2, on csx-")
    running = cluster(size, feed=bad_third_micro_batch)
    assert running.do(Run(ProgramKind.TRAIN, 1, 1, watch=Watch(finite_to=1)))


def test_watch_names_a_weight_that_is_not_finite() -> None:
    """It is found before the micro-batches that read it."""
    running = cluster()
    running.do(LoadWeights({"layers.1.bias": torch.full((4,), torch.nan)}))
    with raises(ApplianceNanError, "value-not-finite") as caught:
        running.do(Run(ProgramKind.TRAIN, 1, 1, watch=Watch(finite_to=1)))
    assert "layer layers.1, on wgt-" in (caught.value.where or "")


def test_watched_norms_do_not_depend_on_the_cluster() -> None:
    """Those of the last step of a job, equal to the norms that torch gives."""
    found = [
        cluster(size).do(Run(ProgramKind.TRAIN, 1, 2, watch=Watch(norms=True)))
        for size in (ClusterSize(1), SIZE, ClusterSize(5, num_servers=3))
    ]
    assert [results[0].tensor_norms for results in found] == [{}] * 3
    first, *others = (results[1].tensor_norms for results in found)
    assert all(list(other.items()) == list(first.items()) for other in others)
    model = Regression()
    (result,) = cluster().do(Run(ProgramKind.TRAIN, 1, 1, watch=Watch(norms=True)))
    batch = source()[0]
    model(**batch).backward()
    for name, parameter in model.named_parameters():
        norms = result.tensor_norms[name]
        assert norms.weight == float(parameter.detach().norm())
        assert parameter.grad is not None
        assert norms.gradient == pytest.approx(float(parameter.grad.norm()), rel=1e-5)
