"""A weight server driven by hand, with everything that it has sent."""

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

import torch

from appliance.placement.cores import UnlimitedCores
from memoryx.server import ServerSpec
from tests.support.plain_torch.plain_sgd import plain_sgd
from tests.support.programs.small_programs import PARAMETERS, program
from tests.support.roles.arenas import StrictArena
from waferstream.core.messages.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import root
from waferstream.core.optimizer import LossScale, LossScaleRule, OptimizerSpec
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.role import Cores, Job, RoleContext

Kind = TypeVar("Kind")
TRAINED = ("first.weight", "first.bias", "last.weight")
NUM_MICRO_BATCHES = 5


def update(**limits: Any) -> OptimizerSpec:
    return plain_sgd(TRAINED, lr=0.5, **limits)


def installed(
    num_servers: int = 1, num_nodes: int = 2, stream_dtype: str = "float32", **limits: Any
) -> Installation:
    tiny = program(stream_dtype)
    plan = plan_streams(tiny, num_servers)
    rounds = Rounds(NUM_MICRO_BATCHES, num_nodes)
    return Installation(tiny, (), plan, rounds, InputFeed(tuple, ()), update(**limits))


class ServerDriver:
    """A server with initial weights and a job, and everything that it has sent."""

    def __init__(
        self,
        index: int = 0,
        num_servers: int = 1,
        window: int = 2,
        steps: int = 2,
        cores: Cores | None = None,
        **options: Any,
    ) -> None:
        self.installed = installed(num_servers, **options)
        self.arena, self.mine = StrictArena(), StrictArena()
        spec = ServerSpec(index, num_servers, "br-0", PARAMETERS, window)
        self.server = spec.build(RoleContext(self.arena, cores or UnlimitedCores()))
        self.server.do(Install(self.installed))
        for number, name in enumerate(self.server.store.masters, start=1):
            shape = self.server.store.masters[name].shape
            self.server.store.fill({name: torch.full(shape, number / 3)})
        self.sent: list[Envelope] = []
        self.lent: list[WeightsReady] = []  # weights that were not released yet
        self.norms: deque[Envelope] = deque()  # what servers tell each other
        is_dynamic = isinstance(options.get("loss_scale"), LossScaleRule)
        self.begin(Job(ProgramKind.TRAIN, 1, steps, LossScale(8.0) if is_dynamic else None))

    def begin(self, job: Job) -> None:
        self.job = self.server.begin(job)
        self.note(self.job.start())

    def note(self, envelopes: Iterable[Envelope]) -> list[Message]:
        """Record what the server sends; return the messages."""
        messages = []
        for envelope in envelopes:
            self.sent.append(envelope)
            messages.append(envelope.message)
            if isinstance(envelope.message, WeightsReady):
                self.lent.append(envelope.message)
            if isinstance(envelope.message, NormPartial | NormTotal):
                self.norms.append(envelope)
        return messages

    def tell(self, message: Message, source: str = "br-0") -> list[Message]:
        return self.note(self.job.handle(Envelope(source, self.server.name, message)))

    def release(self, lent: WeightsReady) -> list[Message]:
        self.lent.remove(lent)
        return self.tell(WeightsReleased(lent.step, lent.round, lent.bucket))

    def release_all(self) -> None:
        while self.lent:
            self.release(self.lent[0])

    def gradient(self, step: int, bucket: int, value: float = 1.0) -> list[Message]:
        """The whole batch's sum of one bucket, as the root of the tree sends it."""
        slab = self.mine.allocate(self.installed.plan.gradients[bucket].num_bytes)
        slab.view(torch.float32).fill_(value)
        subtree = root(NUM_MICRO_BATCHES)
        answers = self.tell(GradientReady(step, 0, bucket, subtree, slab))
        if GradientReleased(step, 0, bucket, subtree) in answers:
            slab.free()
        return answers

    def sent_of(self, kind: type[Kind]) -> list[Kind]:
        return [e.message for e in self.sent if isinstance(e.message, kind)]
