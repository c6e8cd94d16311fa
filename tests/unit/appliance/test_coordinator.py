"""The coordinator: results per step, weights in and out, and a loss that is no number."""

from functools import cache, partial

import pytest
import torch

from appliance.elaborate import ClusterSize
from tests.support.kernels import run_eagerly
from tests.support.local_machine import (
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from wsc.core.digest import weights_digest
from wsc.core.errors import ApplianceNanError, ApplianceRuntimeServerError, CheckpointError

ROWS, NUM_MICRO_BATCHES = 10, 5
SIZE = ClusterSize(2, num_servers=2)
source = partial(random_batches, 3, ROWS)


@cache
def programs():
    model, batch = Regression(), source()[0]
    return [
        compile_model(model, batch, NUM_MICRO_BATCHES, trains=trains) for trains in (True, False)
    ]


def cluster(size=SIZE, feed=source, lr=0.1, **limits):
    """A cluster with a training program and an evaluation program."""
    model = Regression()
    train, evaluate = programs()
    running = start(installation(train, feed, sgd(model, lr, **limits), size), model, size)
    running.install(installation(evaluate, feed, None, size))
    return running


def micro_batch_losses(batch):
    pieces = [{k: t[2 * i : 2 * i + 2] for k, t in batch.items()} for i in range(NUM_MICRO_BATCHES)]
    return [float(run_eagerly(Regression(), piece, FP32, 1)[0]) for piece in pieces]


def test_a_result_is_the_mean_over_micro_batches():
    """Summed in index order, so that it is the same for every cluster."""
    losses = micro_batch_losses(source()[0])
    for size in (ClusterSize(1), SIZE, ClusterSize(5, lanes=2)):
        (result,) = cluster(size).run("train", 1, 1)
        assert result.values == (sum(losses) / NUM_MICRO_BATCHES,)
        assert result.step == 1


def test_steps_read_the_batch_of_their_number():
    """Step s of a training reads global batch s - 1, also when it is the first of a job."""
    (result,) = cluster().run("eval", 3, 3)
    assert result.values == (sum(micro_batch_losses(source()[2])) / NUM_MICRO_BATCHES,)


def test_norms_are_reported_where_gradients_are_clipped():
    """Before clipping; None where nobody asked for it."""
    plain = cluster().run("train", 1, 2)
    assert [result.gradient_norm for result in plain] == [None, None]
    clipped = cluster(max_gradient_norm=0.1).run("train", 1, 2)
    assert all(result.gradient_norm > 0.1 for result in clipped)
    (evaluated,) = cluster(max_gradient_norm=0.1).run("eval", 1, 1)
    assert evaluated.gradient_norm is None


def test_every_step_has_its_emulated_time():
    """Positive, whatever ran before."""
    running = cluster()
    timings = [result.timing for result in running.run("train", 1, 3)]
    assert all(timing.end_ps > timing.start_ps for timing in timings)


def poisoned():
    batches = source()
    batches[1]["x"][3] = float("nan")
    return batches


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_loss_that_is_no_number_ends_the_run(mode):
    """With mode, step and value; the steps before it are what they are."""
    running = cluster(feed=poisoned)
    running.run(mode, 1, 1)
    with pytest.raises(
        ApplianceNanError, match=f"the {mode} loss of step 2 is not finite"
    ) as error:
        running.run(mode, 2, 3)
    assert error.value.value == "nan"
    assert "learning rate" in error.value.remedy


def test_the_check_can_be_left_out():
    """For who wants to see where it goes."""
    results = cluster(feed=poisoned).run("train", 1, 3, check_finite=False)
    assert [result.values[0] == result.values[0] for result in results] == [True, False, False]


def test_a_loss_that_explodes_is_found_too():
    """Infinity is no number either."""
    with pytest.raises(ApplianceNanError, match="train loss of step"):
        cluster(feed=huge, lr=1e30).run("train", 1, 3)


def huge():
    return [{"x": b["x"], "y": b["y"] * 1e18} for b in source()]


def test_masters_are_the_model_s_weights():
    """As they were loaded; the digest is theirs."""
    running = cluster()
    expected = {name: p.detach() for name, p in Regression().named_parameters()}
    masters = running.masters(list(expected))
    assert masters.keys() == expected.keys()
    assert all(torch.equal(torch.from_numpy(masters[name]), expected[name]) for name in masters)
    assert running.digest() == weights_digest(masters.items())


def test_an_ended_cluster_refuses_calls():
    """After shutdown, which may be called twice."""
    running = cluster()
    running.shutdown()
    running.shutdown()
    for call in (running.digest, partial(running.run, "train", 1, 1)):
        with pytest.raises(ApplianceRuntimeServerError) as caught:
            call()
        assert caught.value.code == "cluster-ended"


def test_training_changes_the_digest_and_evaluation_does_not():
    """One learns, the other looks."""
    running = cluster()
    before = running.digest()
    running.run("eval", 1, 2)
    assert running.digest() == before
    running.run("train", 1, 1)
    assert running.digest() != before


def test_a_checkpoint_goes_to_another_cluster(tmp_path):
    """Saved by two servers, restored by three, with equal weights and the same future."""
    path = tmp_path / "checkpoint.mdl"
    first = cluster()
    first.run("train", 1, 1)
    first.save(path, ["model", "optimizer"], {"global_step": 1})
    second = cluster(ClusterSize(3, num_servers=3))
    second.restore(path, ["model", "optimizer"], strict=True)
    assert second.digest() == first.digest()
    first.run("train", 2, 3)
    second.run("train", 2, 3)
    assert second.digest() == first.digest()


def test_a_checkpoint_without_a_state_is_refused(tmp_path):
    """Asking for what is not there is an error that names the file."""
    path = tmp_path / "checkpoint.mdl"
    running = cluster()
    running.save(path, ["optimizer"], {})
    with pytest.raises(CheckpointError, match="holds no tensor") as caught:
        running.restore(path, ["model"], strict=True)
    assert str(path) in str(caught.value)


def test_peaks_are_those_of_the_nodes():
    """By kind, of the last job."""
    running = cluster()
    running.run("train", 1, 1)
    assert running.peak_bytes().keys() == {"csx-0", "csx-1"}
    trained = running.peak_bytes()["csx-0"]
    running.run("eval", 1, 1)
    evaluated = running.peak_bytes()["csx-0"]
    assert "gradients" in trained
    assert "gradients" not in evaluated


def test_activities_are_measured_by_room():
    """Nodes compute, servers update."""
    running = cluster()
    running.run("train", 1, 1)
    _, measured = running.activities()
    kinds = {role: {interval.activity for interval in of} for role, of in measured.items()}
    assert kinds == {
        "csx-0": {"compute"},
        "csx-1": {"compute"},
        "wgt-0": {"update"},
        "wgt-1": {"update"},
    }
