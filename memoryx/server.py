"""A weight server of MemoryX: streams weights, collects gradients, applies the optimizer.

The role itself only knows who is told what: weights go out as ``memoryx.streamer`` lets them,
gradients become updates in ``memoryx.updater``, and each update may let further weights go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from memoryx.norms import NormExchange
from memoryx.persistence import Persistence
from memoryx.store import WeightStore
from memoryx.streamer import Streamer
from memoryx.updater import Updated, Updater
from wsc.core.installation import Installation
from wsc.core.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    WeightsReleased,
)
from wsc.core.names import server_name
from wsc.core.partial_sum import Credit
from wsc.core.program import Mode, TensorSpec, assign_servers
from wsc.core.role import Job, Report, RoleContext
from wsc.core.schedule import collected_by, streamed_by


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

    def build(self, context: RoleContext) -> WeightServer:
        return WeightServer(self, context)


class WeightServer:
    """The role of one weight server."""

    def __init__(self, spec: ServerSpec, context: RoleContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._context = context
        owner = assign_servers(spec.parameters, spec.num_servers)
        owned = tuple(p for p in spec.parameters if owner[p.name] == spec.index)
        self.store = WeightStore(owned)
        self._persistence = Persistence(self.store)
        self._installed: dict[Mode, Installation] = {}

    def install(self, installation: Installation) -> None:
        self._installed[installation.mode] = installation
        if installation.optimizer is not None:
            self.store.train_with(installation.optimizer)
            self._persistence.catch_up()

    def begin(self, job: Job) -> Iterator[Envelope]:
        installed = self._installed[job.mode]
        self._report = Report(self.name)
        self._credits: list[Envelope] = []
        self._streamer = Streamer(
            self.store,
            installed,
            streamed_by(installed.schedule, self._spec.index),
            self._spec.window,
            job,
            self._context,
        )
        self._begin_updates(job, installed)
        yield from self._stream()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReleased(step, round_index, bucket):
                self._streamer.release(step, round_index, bucket)
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
        return self._streamer.finished and self._updates_left == 0

    def report(self) -> Report:
        return self._report

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy initial values into the masters of these parameters."""
        self.store.fill(values)

    def save(self, path: Path, state: str) -> None:
        """Append the tensors of one checkpoint state to a file."""
        self._persistence.save(path, state)

    def restore(self, path: Path, state: str, strict: bool) -> None:
        """Read the tensors of one checkpoint state from a file."""
        self._persistence.restore(path, state, strict)

    def masters(self, names: Sequence[str]) -> list[np.ndarray]:
        """Return copies of the fp32 masters of these parameters."""
        return [self.store.masters[name].numpy().copy() for name in names]

    def _begin_updates(self, job: Job, installed: Installation) -> None:
        plan = installed.plan
        owned = collected_by(installed.schedule, self._spec.index)
        self._updates_left = len(job.steps) * sum(len(bucket.names) for bucket in owned)
        if installed.optimizer is not None and plan.gradients:
            self._norms = NormExchange(sorted({bucket.server for bucket in plan.gradients}))
            self._updater = Updater(
                self._spec.index,
                self.store,
                installed.program,
                owned,
                installed.optimizer,
                self._context.cores,
                self._report.intervals,
            )

    def _stream(self) -> Iterator[Envelope]:
        yield from (self._to(self._spec.root, ready) for ready in self._streamer.send())

    def _credit(self, source: str, gradient: GradientReady) -> Credit:
        """Return what gives a gradient's payload back when it has been read."""
        released = GradientReleased(
            gradient.step, gradient.round, gradient.bucket, gradient.subtree
        )
        return Credit(self._to(source, released), self._credits)

    def _settle(self, step: int, updated: Updated) -> Iterator[Envelope]:
        """Note what was updated, give credits back, pass on a norm."""
        self._streamer.note_update(updated.names, step)
        self._updates_left -= len(updated.names)
        yield from self._credits
        self._credits.clear()
        if updated.partial is not None:
            yield self._to(self._norms.leader, updated.partial)

    def _to(self, target: str, message: Message) -> Envelope:
        return Envelope(self.name, target, message)
