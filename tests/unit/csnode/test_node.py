"""A CS node driven by hand: it advances as far as its messages allow, and keeps nothing."""

from __future__ import annotations

import threading
from typing import Any, Never

import pytest
import torch

from csnode.lanes import Running
from csnode.micro_batch import MicroBatch
from tests.support.errors import raises
from tests.support.roles.local_machine import BF16, FP32
from tests.support.roles.node_driver import NodeDriver
from waferstream.core.errors import ApplianceError, ApplianceResourceExhausted
from waferstream.core.messages.messages import (
    BatchReady,
    BatchReleased,
    GradientReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import leaf
from waferstream.core.program.segment import Segment
from waferstream.numerics.precision import StreamPrecision


def test_node_round_matches_autograd() -> None:
    """The gradients and the loss are those of autograd, and go to the right neighbours."""
    driver = NodeDriver(index=1)
    assert driver.send_batch(1) == [BatchReleased(1, 1)]
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    loss, gradients = driver.expected(1)
    assert driver.job.report().results == {(1, 1): (float(loss),)}
    finished_before_release = driver.job.finished
    for index, values in driver.take_gradients().items():
        names = driver.plan.gradients[index].names
        assert torch.equal(values, torch.cat([gradients[name].reshape(-1) for name in names]))
    assert (finished_before_release, driver.job.finished) == (False, True)
    targets = {type(envelope.message): envelope.target for envelope in driver.sent}
    assert targets == {BatchReleased: "wrk-0", WeightsReleased: "br-0", GradientReady: "br-0"}


def test_node_waits_for_missing_messages() -> None:
    """Early weights are kept; no segment runs before its inputs have arrived."""
    driver = NodeDriver(index=1)
    last, first = driver.plan.weights[-1].index, driver.plan.weights[0].index
    assert driver.send_weights(0, first) == []
    assert driver.send_weights(0, last) == []
    assert driver.send_batch(1) == [BatchReleased(1, 1), WeightsReleased(1, 0, first)]


def test_node_copies_a_batch_before_releasing_it() -> None:
    """Its inputs were copied out before it was released."""
    driver = NodeDriver(index=1)
    rows = [tensor[2:4].reshape(-1) for tensor in driver.batch.values()]
    slab = driver.slab(torch.cat(rows))
    driver.tell(BatchReady(1, 1, slab))
    slab.free()
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    assert driver.job.report().results[1, 1] == (float(driver.expected(1)[0]),)


def test_node_without_micro_batch_releases_weights() -> None:
    """In the last round node 1 has no micro-batch: it releases at once and sends no gradient."""
    driver = NodeDriver(index=1)
    driver.send_batch(1)
    for bucket in driver.plan.weights:
        driver.send_weights(0, bucket.index)
    for bucket in driver.plan.weights:
        assert driver.send_weights(1, bucket.index) == [WeightsReleased(1, 1, bucket.index)]
    driver.take_gradients()
    assert driver.job.finished


def test_kernel_failure_names_layer_and_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names layer, direction, micro-batch and step."""

    def fail(*_: object) -> Never:
        raise IndexError("index out of range in self")

    monkeypatch.setattr(MicroBatch, "run", fail)
    driver = NodeDriver()
    driver.send_batch(0)
    with raises(ApplianceError, "kernel-failed") as caught:
        driver.send_weights(0, 0)
    assert caught.value.where == "layers.0 forward, micro-batch 0 of step 1"
    assert "index out of range" in str(caught.value.value)
    assert isinstance(caught.value.__cause__, IndexError)


def test_op_that_no_gpu_repeats_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch refuses it while it runs; no index is wrong."""

    def fail(*_: object) -> Never:
        raise RuntimeError(
            "adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation, "
            "but you set 'torch.use_deterministic_algorithms(True)'. You can turn off"
        )

    monkeypatch.setattr(MicroBatch, "run", fail)
    driver = NodeDriver()
    driver.send_batch(0)
    with raises(ApplianceError, "device-op-not-deterministic") as caught:
        driver.send_weights(0, 0)
    assert "adaptive_avg_pool2d_backward_cuda" in str(caught.value.value)


def test_node_gradients_carry_round_and_subtree() -> None:
    """Each message has the micro-batches, round and bucket of its sum."""
    driver = NodeDriver(index=0)
    for index in (0, 2):
        driver.send_batch(index)
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    gradients = [e.message for e in driver.sent if isinstance(e.message, GradientReady)]
    assert {(m.round, m.subtree) for m in gradients} == {(0, leaf(0, 3)), (1, leaf(2, 3))}
    order = [m.bucket for m in gradients if m.round == 0]
    assert order == [bucket.index for bucket in driver.plan.gradients]


def test_node_evaluation_sends_no_gradient() -> None:
    """No gradient leaves; the report holds the loss of each micro-batch."""
    driver = NodeDriver(index=0, trains=False)
    for index in (0, 2):
        driver.send_batch(index)
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    assert driver.job.finished
    results = driver.job.report().results
    assert results == {(1, i): (float(driver.expected(i)[0]),) for i in (0, 2)}


def test_node_with_two_lanes_sends_one_sum() -> None:
    """Micro-batches 0 and 1 are siblings, so their gradients leave as one."""
    driver = NodeDriver(index=0, lanes=2)
    for index in (0, 1):
        driver.send_batch(index)
    for bucket in driver.plan.weights:
        driver.send_weights(0, bucket.index)
    first, second = (driver.expected(index)[1] for index in (0, 1))
    for index, values in driver.take_gradients().items():
        names = driver.plan.gradients[index].names
        sums = [(first[name] + second[name]).reshape(-1) for name in names]
        assert torch.equal(values, torch.cat(sums))
    assert driver.job.finished
    assert driver.arena.live == set()


@pytest.mark.parametrize(("index", "lanes", "are_written"), [(1, 1, True), (0, 2, False)])
def test_gradients_of_one_micro_batch_are_written_into_their_slab(
    monkeypatch: pytest.MonkeyPatch, index: int, lanes: int, are_written: bool
) -> None:
    """Only where no sibling is added, and only by products: biases are copied."""
    made: dict[str, int] = {}
    take = MicroBatch.take_gradients

    def note(batch: MicroBatch) -> dict[str, torch.Tensor]:
        taken = take(batch)
        made.update({name: tensor.data_ptr() for name, tensor in taken.items()})
        return taken

    monkeypatch.setattr(MicroBatch, "take_gradients", note)
    driver = NodeDriver(index, lanes=lanes)
    for batch in range(index, index + lanes):
        driver.send_batch(batch)
    for bucket in driver.plan.weights:
        driver.send_weights(0, bucket.index)
    messages = [envelope.message for envelope in driver.sent]
    slabs = [m.payload.view(torch.uint8) for m in messages if isinstance(m, GradientReady)]
    ranges = [range(slab.data_ptr(), slab.data_ptr() + len(slab)) for slab in slabs]
    found = {name for name, address in made.items() if any(address in each for each in ranges)}
    weights = {name for name in made if name.endswith("weight")}
    assert weights
    assert found == (weights if are_written else set())


def test_lanes_go_on_past_the_end_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch runs the second segment while the other one still runs the first."""
    second_runs = threading.Event()
    run = MicroBatch.run

    def run_slowly(batch: MicroBatch, segment: Segment, *rest: Any) -> None:
        if segment.index == 1:
            second_runs.set()
        elif batch.index == 1:
            assert second_runs.wait(10)
        run(batch, segment, *rest)

    monkeypatch.setattr(MicroBatch, "run", run_slowly)
    driver = NodeDriver(index=0, lanes=2)
    for index in (0, 1):
        driver.send_batch(index)
    sent = driver.post_weights(0) + driver.post_weights(1)
    first = (sent or driver.work())[0]  # the first segment may have ended while weights came
    assert first == WeightsReleased(1, 0, 0)
    driver.job.leave()  # a lane that runs on would call what the next test puts in place


def test_node_leaves_when_its_lanes_have_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs ends; what has not begun never does, so nothing is written afterwards."""
    may_end, ran = threading.Event(), []

    def run(_: MicroBatch, segment: Segment, *__: Any) -> None:
        ran.append(segment.index)
        assert may_end.wait(10)

    monkeypatch.setattr(MicroBatch, "run", run)
    driver = NodeDriver(index=0, lanes=2)
    for index in (0, 1):
        driver.send_batch(index)
    driver.post_weights(0)
    driver.post_weights(1)
    waits, wait = threading.Event(), Running.wait

    def wait_after_cancel(running: Running) -> None:
        waits.set()
        wait(running)

    monkeypatch.setattr(Running, "wait", wait_after_cancel)
    leaving = threading.Thread(target=driver.job.leave)
    leaving.start()
    assert waits.wait(10)
    assert leaving.is_alive()
    may_end.set()
    leaving.join(10)
    assert not leaving.is_alive()
    assert set(ran) == {0}


def test_node_refuses_weights_beyond_its_sram() -> None:
    """The error is raised on arrival, with the sizes."""
    driver = NodeDriver(sram_bytes=10)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded") as caught:
        driver.send_weights(0, driver.plan.weights[0].index)
    assert caught.value.value == "weights 80 B"


def test_node_reports_sram_peaks_by_kind() -> None:
    """Weights, activations, gradients, and the total of one moment."""
    driver = NodeDriver(index=1)
    driver.send_batch(1)
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    driver.take_gradients()
    peaks = driver.job.report().peak_bytes
    assert peaks.keys() == {"weights", "activations", "gradients", "total"}
    assert peaks["weights"] == max(bucket.num_bytes for bucket in driver.plan.weights)
    assert peaks["gradients"] == sum(bucket.num_bytes for bucket in driver.plan.gradients)


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
def test_node_forgets_gradients_that_are_released(precision: StreamPrecision) -> None:
    """Of each round alike, in whichever dtype they travel."""
    driver = NodeDriver(index=0, precision=precision)
    for round_index, micro_batch in enumerate((0, 2)):
        driver.send_batch(micro_batch)
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
        assert driver.take_gradients()
        driver.sent.clear()
    peak = driver.job.report().peak_bytes["gradients"]
    assert peak == sum(bucket.num_bytes for bucket in driver.plan.gradients)
    assert driver.arena.live == set()


def test_gpu_without_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the segment, the micro-batch and the step."""

    def fail(*_: object) -> Never:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    driver = NodeDriver(index=1)
    driver.send_batch(1)
    monkeypatch.setattr(MicroBatch, "run", fail)
    with raises(ApplianceResourceExhausted, "gpu-memory-exhausted") as caught:
        driver.send_weights(0, 0)
    assert "micro-batch 1 of step 1" in str(caught.value.where)
