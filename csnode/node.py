"""A CS system: activations, kernels, and weights only while they pass through.

The role keeps the mail; what it does with it is the walk of csnode.executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from csnode.executor import Inbox, InstalledKernels, RoundOfStep, Walk
from csnode.lanes import Lanes
from csnode.sram import SramLedger
from wsc.core.installation import Installation
from wsc.core.messages import (
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReleased,
    WeightsReady,
)
from wsc.core.names import node_name
from wsc.core.program import Mode
from wsc.core.role import Job, Report, RoleContext


@dataclass(frozen=True)
class NodeSpec:
    """How to build a CS node. ``parent`` is its switch, ``worker`` its input worker."""

    index: int
    parent: str
    worker: str
    seed: int
    lanes: int
    sram_bytes: int

    @property
    def name(self) -> str:
        return node_name(self.index)

    def build(self, context: RoleContext) -> CSNode:
        return CSNode(self, context)


class CSNode:
    """The role of one CS system."""

    def __init__(self, spec: NodeSpec, context: RoleContext) -> None:
        self.name = spec.name
        self._spec = spec
        self._context = context
        self._lanes = Lanes(spec.lanes, f"{self.name}-lane")
        self._inbox = Inbox()
        self._kernels: dict[Mode, InstalledKernels] = {}

    def install(self, installation: Installation) -> None:
        self._kernels[installation.mode] = InstalledKernels(installation)

    def begin(self, job: Job) -> Iterator[Envelope]:
        """Set out on the schedule; it pauses where the first message is missing."""
        self._report = Report(self.name)
        self._sram = SramLedger(self.name, self._spec.sram_bytes)
        self._journey = self._travel(job)
        self._arrived = False
        yield from self._advance()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        match envelope.message:
            case WeightsReady(step, round_index, bucket, payload):
                self._sram.change("weights", payload.num_bytes)
                self._inbox.weights[RoundOfStep(step, round_index), bucket] = payload
            case BatchReady(step, micro_batch, payload):
                self._inbox.batches[step, micro_batch] = payload
            case GradientReleased(step, round_index, bucket, subtree):
                part = self._inbox.sent.pop((RoundOfStep(step, round_index), bucket, subtree))
                self._sram.change("gradients", -part.payload.num_bytes)
                part.release()
            case message:
                raise TypeError(f"{self.name} does not take {type(message).__name__}")
        yield from self._advance()

    @property
    def finished(self) -> bool:
        return self._arrived and not self._inbox.sent

    def report(self) -> Report:
        self._report.peak_bytes = dict(self._sram.peak_bytes)
        return self._report

    def _travel(self, job: Job) -> Iterator[Envelope | None]:
        spec = self._spec
        installed = self._kernels[job.mode]
        walk = Walk(
            installed,
            spec.seed,
            self._context,
            self._lanes,
            self._inbox,
            self._sram,
            self._report,
        )
        rounds = installed.rounds
        for step in job.steps:
            for round_index in range(rounds.count):
                own = rounds.of_node(round_index, spec.index)
                for message in walk.round(RoundOfStep(step, round_index), own):
                    if message is None:
                        yield None
                        continue
                    to_worker = isinstance(message, BatchReleased)
                    target = spec.worker if to_worker else spec.parent
                    yield Envelope(self.name, target, message)

    def _advance(self) -> Iterator[Envelope]:
        """Go on until the schedule ends or lacks a message."""
        for envelope in self._journey:
            if envelope is None:
                return
            yield envelope
        self._arrived = True
