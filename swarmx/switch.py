"""A broadcast-reduce node of SwarmX: relays weights down, merges gradient siblings on the way up.

Down, the payload is not touched: children read the slab that the server wrote, and the switch
counts their credits. Up, it adds subtrees that are siblings in the canonical order and forwards the
rest as they are, again without copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from wsc.core.installation import Installation
from wsc.core.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    WeightsReady,
    WeightsReleased,
)
from wsc.core.names import server_name, switch_name
from wsc.core.partial_sum import Credit, Operands, PartialSum, one_by_one
from wsc.core.program import Mode
from wsc.core.reduce_order import Merger, Subtree
from wsc.core.role import Job, Report, RoleContext

Place = tuple[int, int, int]  # step, round, bucket


@dataclass(frozen=True)
class SwitchSpec:
    """How to build a switch: ``nodes`` are the CS nodes below, ``parent`` is None at the root."""

    index: int
    parent: str | None
    children: tuple[str, ...]
    nodes: range

    @property
    def name(self) -> str:
        return switch_name(self.index)

    def build(self, context: RoleContext) -> Switch:
        return Switch(self, context)


@dataclass
class _Reduction:
    """The subtrees of one gradient bucket in one round, until all children have sent theirs."""

    merger: Merger[PartialSum]
    micro_batches_left: int


class Switch:
    """The role of one switch."""

    def __init__(self, spec: SwitchSpec, context: RoleContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._arena = context.arena
        self._cores = context.cores
        self._readers: dict[Place, int] = {}
        self._sources: dict[Place, str] = {}
        self._reductions: dict[Place, _Reduction] = {}
        self._sent: dict[tuple[Place, Subtree], PartialSum] = {}
        self._credits: list[Envelope] = []
        self._installed: dict[Mode, Installation] = {}

    def install(self, installation: Installation) -> None:
        self._installed[installation.mode] = installation

    def begin(self, job: Job) -> Iterator[Envelope]:
        """Count what will pass; a switch starts nothing by itself."""
        self._plan = self._installed[job.mode].plan
        self._rounds = self._installed[job.mode].rounds
        active = sum(bool(self._below(index)) for index in range(self._rounds.count))
        self._weights_left = len(job.steps) * self._rounds.count * len(self._plan.weights)
        self._gradients_left = len(job.steps) * active * len(self._plan.gradients)
        yield from ()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReady(step, round_index, bucket) as ready:
                place = (step, round_index, bucket)
                self._readers[place] = len(self._spec.children)
                self._sources[place] = envelope.source
                yield from (self._to(child, ready) for child in self._spec.children)
            case WeightsReleased(step, round_index, bucket) as released:
                yield from self._release_weights((step, round_index, bucket), released)
            case GradientReady() as ready:
                yield from self._reduce(envelope.source, ready)
            case GradientReleased(step, round_index, bucket, subtree):
                self._sent.pop(((step, round_index, bucket), subtree)).release()
                yield from self._pop_credits()
            case message:
                raise TypeError(f"{self.name} does not take {type(message).__name__}")

    @property
    def finished(self) -> bool:
        return self._weights_left == 0 and self._gradients_left == 0 and not self._sent

    def report(self) -> Report:
        return Report(self.name)

    def _below(self, round_index: int) -> range:
        """The micro-batches that the nodes below compute in a round."""
        return self._rounds.of_nodes(round_index, self._spec.nodes)

    def _release_weights(self, place: Place, released: WeightsReleased) -> Iterator[Envelope]:
        self._readers[place] -= 1
        if self._readers[place] == 0:
            del self._readers[place]
            self._weights_left -= 1
            yield self._to(self._sources.pop(place), released)

    def _reduce(self, child: str, ready: GradientReady) -> Iterator[Envelope]:
        place = (ready.step, ready.round, ready.bucket)
        total = self._rounds.num_micro_batches
        if place not in self._reductions:
            merger: Merger[PartialSum] = Merger(total, self._sum)
            self._reductions[place] = _Reduction(merger, len(self._below(ready.round)))
        reduction = self._reductions[place]
        released = GradientReleased(ready.step, ready.round, ready.bucket, ready.subtree)
        lent = PartialSum(
            [ready.payload.view(torch.float32)],
            ready.payload,
            on_release=Credit(self._to(child, released), self._credits),
        )
        reduction.merger.offer(ready.subtree, lent)
        reduction.micro_batches_left -= ready.subtree.size(total)
        yield from self._pop_credits()
        if reduction.micro_batches_left == 0:
            del self._reductions[place]
            self._gradients_left -= 1
            up = self._spec.parent or server_name(self._plan.gradients[ready.bucket].server)
            for subtree, part in reduction.merger.take():
                self._sent[place, subtree] = part
                yield self._to(up, GradientReady(*place, subtree, part.payload))

    def _sum(self, left: PartialSum, right: PartialSum) -> PartialSum:
        return left.add(right, self._allocate, self._on_a_core)

    def _allocate(self, like: PartialSum) -> PartialSum:
        slab = self._arena.allocate(like.payload.num_bytes)
        return PartialSum([slab.view(torch.float32)], slab, is_owned=True, on_release=slab.free)

    def _on_a_core(self, act: Callable[..., object], operands: Operands) -> None:
        with self._cores.lease():
            one_by_one(act, operands)

    def _pop_credits(self) -> Iterator[Envelope]:
        yield from self._credits
        self._credits.clear()

    def _to(self, target: str, message: Message) -> Envelope:
        return Envelope(self.name, target, message)
