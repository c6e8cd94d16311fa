"""A CS node driven by hand: it advances as far as its messages allow, and keeps nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Never

import pytest
import torch

from appliance.cores import UnlimitedCores
from appliance.elaborate import ClusterSize
from csnode.micro_batch import MicroBatch
from csnode.node import NodeSpec
from csnode.running import Running
from tests.support.arenas import StrictArena, StrictSlab
from tests.support.errors import raises
from tests.support.kernels import Gradients, run_eagerly
from tests.support.local_machine import (
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from wsc.core.errors import ApplianceError, ApplianceResourceExhausted
from wsc.core.messages import (
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    WeightsReady,
    WeightsReleased,
)
from wsc.core.reduce_order import leaf
from wsc.core.role import Job, RoleContext
from wsc.core.segment import Segment

NUM_MICRO_BATCHES, ROWS = 3, 6
source = partial(random_batches, 1, ROWS)


class Driver:
    """The neighbours of one node of two: sends it messages and records its answers."""

    def __init__(
        self, index: int = 0, sram_bytes: int = 1 << 20, trains: bool = True, lanes: int = 1
    ) -> None:
        self.model = Regression()
        self.batch = source()[0]
        compiled = compile_model(self.model, self.batch, NUM_MICRO_BATCHES, trains=trains)
        optimizer = sgd(self.model) if trains else None
        installed = installation(
            compiled, source, optimizer, ClusterSize(2, lanes=lanes, activation_bytes=1)
        )
        self.arena, self.mine = StrictArena(), StrictArena()
        spec = NodeSpec(index, "br-0", "wrk-0", seed=0, lanes=lanes, sram_bytes=sram_bytes)
        self.node = spec.build(RoleContext(self.arena, UnlimitedCores()))
        self.node.install(installed)
        self.program, self.plan = installed.program, installed.plan
        self.job = self.node.begin(Job(self.program.mode, 1, 1))
        self.sent = list(self.job.start())

    def tell(self, message: Message) -> list[Message]:
        """Deliver a message; return the messages that it causes."""
        answers = self.post(message)
        while self.job.is_working:
            answers += self.work()
        return answers

    def post(self, message: Message) -> list[Message]:
        """Deliver a message; return what it causes at once."""
        return self.note(self.job.handle(Envelope("test", self.node.name, message)))

    def work(self) -> list[Message]:
        """Wait for the lanes once; return the messages that this causes."""
        return self.note(self.job.work())

    def note(self, envelopes: Iterator[Envelope]) -> list[Message]:
        answers = list(envelopes)
        self.sent += answers
        return [envelope.message for envelope in answers]

    def send_batch(self, index: int) -> list[Message]:
        rows = [tensor[2 * index : 2 * index + 2] for tensor in self.batch.values()]
        data = torch.cat([row.reshape(-1) for row in rows])
        return self.tell(BatchReady(1, index, self.slab(data)))

    def send_weights(self, round_index: int, bucket: int) -> list[Message]:
        return self.tell(self.weights(round_index, bucket))

    def post_weights(self, bucket: int) -> list[Message]:
        return self.post(self.weights(0, bucket))

    def weights(self, round_index: int, bucket: int) -> WeightsReady:
        names = self.plan.weights[bucket].names
        state = self.model.state_dict()
        data = torch.cat([state[name].reshape(-1) for name in names])
        return WeightsReady(1, round_index, bucket, self.slab(data))

    def slab(self, data: torch.Tensor) -> StrictSlab:
        slab = self.mine.allocate(data.numel() * 4)
        slab.view(torch.float32).copy_(data)
        return slab

    def take_gradients(self) -> dict[int, torch.Tensor]:
        """Release every gradient; return a copy of each bucket."""
        found = {}
        for message in [e.message for e in self.sent]:
            if isinstance(message, GradientReady):
                found[message.bucket] = message.payload.view(torch.float32).clone()
                self.tell(GradientReleased(1, message.round, message.bucket, message.subtree))
        return found

    def expected(self, index: int) -> tuple[torch.Tensor, Gradients]:
        micro_batch = {key: rows[2 * index : 2 * index + 2] for key, rows in self.batch.items()}
        return run_eagerly(self.model, micro_batch, FP32, NUM_MICRO_BATCHES)


def test_node_round_matches_autograd() -> None:
    """The gradients and the loss are those of autograd, and go to the right neighbours."""
    driver = Driver(index=1)
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
    driver = Driver(index=1)
    last, first = driver.plan.weights[-1].index, driver.plan.weights[0].index
    assert driver.send_weights(0, first) == []
    assert driver.send_weights(0, last) == []
    assert driver.send_batch(1) == [BatchReleased(1, 1), WeightsReleased(1, 0, first)]


def test_node_copies_a_batch_before_releasing_it() -> None:
    """Its inputs were copied out before it was released."""
    driver = Driver(index=1)
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
    driver = Driver(index=1)
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
    driver = Driver()
    driver.send_batch(0)
    with raises(ApplianceError, "kernel-failed") as caught:
        driver.send_weights(0, 0)
    assert caught.value.where == "layers.0 forward, micro-batch 0 of step 1"
    assert "index out of range" in str(caught.value.value)
    assert isinstance(caught.value.__cause__, IndexError)


def test_node_gradients_carry_round_and_subtree() -> None:
    """Each message has the micro-batches, round and bucket of its sum."""
    driver = Driver(index=0)
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
    driver = Driver(index=0, trains=False)
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
    driver = Driver(index=0, lanes=2)
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
    driver = Driver(index=0, lanes=2)
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
    driver = Driver(index=0, lanes=2)
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
    driver = Driver(sram_bytes=10)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded") as caught:
        driver.send_weights(0, driver.plan.weights[0].index)
    assert caught.value.value == "weights 80 B"


def test_node_reports_sram_peaks_by_kind() -> None:
    """Weights, activations, gradients, and the total of one moment."""
    driver = Driver(index=1)
    driver.send_batch(1)
    for round_index in (0, 1):
        for bucket in driver.plan.weights:
            driver.send_weights(round_index, bucket.index)
    driver.take_gradients()
    peaks = driver.job.report().peak_bytes
    assert peaks.keys() == {"weights", "activations", "gradients", "total"}
    assert peaks["weights"] == max(bucket.num_bytes for bucket in driver.plan.weights)
    assert peaks["gradients"] == sum(bucket.num_bytes for bucket in driver.plan.gradients)


def test_gpu_without_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the segment, the micro-batch and the step."""

    def fail(*_: object) -> Never:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    driver = Driver(index=1)
    driver.send_batch(1)
    monkeypatch.setattr(MicroBatch, "run", fail)
    with raises(ApplianceResourceExhausted, "gpu-memory-exhausted") as caught:
        driver.send_weights(0, 0)
    assert "micro-batch 1 of step 1" in str(caught.value.where)
