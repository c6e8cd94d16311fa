"""A CS node driven by hand: its neighbours, who send it messages and record its answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from appliance.elaboration.elaborate import ClusterSize
from appliance.placement.cores import UnlimitedCores
from csnode.node import NodeSpec
from tests.support.programs.kernels import Gradients, run_eagerly
from tests.support.roles.arenas import StrictArena, StrictSlab
from tests.support.roles.local_machine import (
    FP32,
    Regression,
    compiled_regression,
    installation,
    random_batches,
    sgd,
)
from waferstream.core.messages.messages import (
    BatchReady,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    WeightsReady,
)
from waferstream.core.roles.commands import Install
from waferstream.core.roles.role import Job, RoleContext
from waferstream.numerics.precision import DTYPES, StreamPrecision

NUM_MICRO_BATCHES, ROWS = 3, 6
source = partial(random_batches, 1, ROWS)


class NodeDriver:
    """The neighbours of one node of two: sends it messages and records its answers."""

    def __init__(
        self,
        index: int = 0,
        sram_bytes: int = 1 << 20,
        trains: bool = True,
        lanes: int = 1,
        precision: StreamPrecision = FP32,
    ) -> None:
        self.model = Regression()
        self.batch = source()[0]
        self.precision = precision
        compiled = compiled_regression(ROWS, NUM_MICRO_BATCHES, trains=trains, precision=precision)
        optimizer = sgd(self.model) if trains else None
        installed = installation(
            compiled, source, optimizer, ClusterSize(2, lanes=lanes, activation_bytes=1)
        )
        self.arena, self.mine = StrictArena(), StrictArena()
        spec = NodeSpec(index, "br-0", "wrk-0", seed=0, lanes=lanes, sram_bytes=sram_bytes)
        self.node = spec.build(RoleContext(self.arena, UnlimitedCores()))
        self.node.do(Install(installed))
        self.program, self.plan = installed.program, installed.plan
        self.job = self.node.begin(Job(self.program.kind, 1, 1))
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
        return WeightsReady(1, round_index, bucket, self.slab(data.to(self.precision.stream_dtype)))

    def slab(self, data: torch.Tensor) -> StrictSlab:
        slab = self.mine.allocate(data.nbytes)
        slab.view(data.dtype).copy_(data)
        return slab

    def take_gradients(self) -> dict[int, torch.Tensor]:
        """Release every gradient; return a copy of each bucket."""
        found = {}
        for message in [e.message for e in self.sent]:
            if isinstance(message, GradientReady):
                dtype = DTYPES[self.program.dtype_of_sum(message.subtree.size(NUM_MICRO_BATCHES))]
                found[message.bucket] = message.payload.view(dtype).clone()
                self.tell(GradientReleased(1, message.round, message.bucket, message.subtree))
        return found

    def expected(self, index: int) -> tuple[torch.Tensor, Gradients]:
        micro_batch = {key: rows[2 * index : 2 * index + 2] for key, rows in self.batch.items()}
        return run_eagerly(self.model, micro_batch, FP32, NUM_MICRO_BATCHES)
