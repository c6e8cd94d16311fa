"""A weight server of MemoryX: streams weights, collects gradients, applies the optimizer.

Within a job it runs ahead as far as three rules allow: weights stream in schedule order; at most
``window`` shards are unreleased; a weight of step t + 1 waits for its update of step t. So the
first layers of the next step go out while the last updates of this one are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memoryx.norms import NormExchange
from memoryx.persistence import Persistence
from memoryx.store import WeightStore
from memoryx.updater import Updated, Updater
from wsc.compiler.installation import Installation
from wsc.compiler.precision import DTYPES
from wsc.core.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    WeightsReady,
    WeightsReleased,
)
from wsc.core.names import server_name
from wsc.core.optimizer import OptimizerSpec
from wsc.core.packing import shard_specs, unpack
from wsc.core.payload import Slab
from wsc.core.program import Mode, Shard, TensorSpec, place
from wsc.core.room import Job, Report, RoomContext


@dataclass(frozen=True)
class ServerSpec:
    """How to build a weight server. ``root`` is the switch at the top of the SwarmX tree."""

    index: int
    num_servers: int
    root: str
    parameters: tuple[TensorSpec, ...]  # of the whole model
    window: int

    @property
    def name(self) -> str:
        return server_name(self.index)

    def build(self, context: RoomContext) -> WeightServer:
        return WeightServer(self, context)


class WeightServer:
    """The room of one weight server."""

    def __init__(self, spec: ServerSpec, context: RoomContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._context = context
        owner = place(spec.parameters, spec.num_servers)
        owned = tuple(p for p in spec.parameters if owner[p.name] == spec.index)
        self.store = WeightStore(owned)
        self.persistence = Persistence(self.store)
        self._installed: dict[Mode, Installation] = {}

    def install(self, installation: Installation) -> None:
        self._installed[installation.mode] = installation
        if installation.optimizer is not None:
            self.store.train_with(installation.optimizer)

    def begin(self, job: Job) -> Iterator[Envelope]:
        installed = self._installed[job.mode]
        self._program = installed.program
        self._plan = installed.plan
        self._report = Report(self.name)
        self._sends = self._schedule(job, installed.rounds.count)
        self._next_send = next(self._sends, None)
        self._unreleased: dict[tuple[int, int, int], Slab] = {}
        self._version = dict.fromkeys(self._program.trained, job.first_step - 1)
        self._credits: list[Envelope] = []
        self._begin_updates(job, installed.optimizer)
        yield from self._stream()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReleased(step, round_index, shard):
                self._unreleased.pop((step, round_index, shard)).free()
            case GradientReady() as gradient:
                updated = self._updater.take(gradient, self._credit(envelope.source, gradient))
                yield from self._settle(gradient.step, updated)
            case NormPartial() as partial:
                for target, total in self._norms.take(partial):
                    yield self._to(target, total)
            case NormTotal(step, norm):
                self._report.norms[step] = norm
                yield from self._settle(step, self._updater.clip_and_apply(step, norm))
            case message:
                raise TypeError(f"{self.name} does not take {type(message).__name__}")
        yield from self._stream()

    @property
    def finished(self) -> bool:
        return self._next_send is None and not self._unreleased and self._updates_left == 0

    def report(self) -> Report:
        return self._report

    def masters(self, names: Sequence[str]) -> list[np.ndarray]:
        """Copies of some masters, for digests and for handing weights to the user."""
        return [self.store.masters[name].numpy().copy() for name in names]

    def _begin_updates(self, job: Job, optimizer: OptimizerSpec | None) -> None:
        spec = self._spec
        owned = self._plan.gradients_of(spec.index)
        self._updates_left = len(job.steps) * sum(len(shard.names) for shard in owned)
        if optimizer is not None and self._plan.gradients:
            self._norms = NormExchange(sorted({shard.server for shard in self._plan.gradients}))
            self._updater = Updater(
                spec.index,
                self.store,
                self._program,
                owned,
                optimizer,
                self._context.cores,
                self._report.intervals,
            )

    def _schedule(self, job: Job, num_rounds: int) -> Iterator[tuple[int, int, Shard]]:
        for step in job.steps:
            for round_index in range(num_rounds):
                for shard in self._plan.weights_of(self._spec.index):
                    yield step, round_index, shard

    def _stream(self) -> Iterator[Envelope]:
        """Send weights as far ahead as window and versions allow."""
        while self._next_send is not None and len(self._unreleased) < self._spec.window:
            step, round_index, shard = self._next_send
            if self._program.mode == "train" and not self._is_current(shard, step):
                return
            slab = self._cast(shard)
            self._unreleased[step, round_index, shard.index] = slab
            self._next_send = next(self._sends, None)
            yield self._to(self._spec.root, WeightsReady(step, round_index, shard.index, slab))

    def _is_current(self, shard: Shard, step: int) -> bool:
        """Whether every trained weight of the shard has seen the update of the step before."""
        return all(self._version.get(name, step - 1) == step - 1 for name in shard.names)

    def _cast(self, shard: Shard) -> Slab:
        """The shard's masters in stream dtype: the cast is the copy that travels."""
        slab = self._context.arena.allocate(shard.num_bytes)
        dtype = self._program.stream_dtype
        specs = shard_specs(self._program, shard, dtype)
        views = unpack(slab.view(DTYPES[dtype]), specs)
        with self._context.cores.lease():
            for name, view in zip(shard.names, views, strict=True):
                view.copy_(self.store.masters[name])
        return slab

    def _credit(self, source: str, gradient: GradientReady) -> Callable[[], None]:
        """What to call when a gradient's payload has been read."""
        released = GradientReleased(gradient.step, gradient.round, gradient.shard, gradient.span)
        return lambda: self._credits.append(self._to(source, released))

    def _settle(self, step: int, updated: Updated) -> Iterator[Envelope]:
        """Record new versions, give credits back, pass on a norm."""
        for name in updated.names:
            self._version[name] = step
        self._updates_left -= len(updated.names)
        yield from self._credits
        self._credits.clear()
        if updated.partial is not None:
            yield self._to(self._norms.leader, updated.partial)

    def _to(self, target: str, message: Message) -> Envelope:
        return Envelope(self.name, target, message)
