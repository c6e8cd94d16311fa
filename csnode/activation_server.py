"""An activation server: keeps what micro-batches have stashed and their nodes have no room for.

Nodes decide when a piece leaves and when they want it back (waferstream.core.program.trips), so
the server knows nothing of kernels. It keeps a piece in its own memory, and sends it back in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from waferstream.core.messages.messages import Envelope, StashReady, StashReleased, StashWanted
from waferstream.core.messages.payload import Payload, Slab
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.activities import ActivityLog, Place
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import activation_server_name, node_name
from waferstream.core.roles.role import (
    Command,
    Job,
    JobState,
    Report,
    RoleContext,
    Waiting,
    not_taken,
)

Piece = tuple[str, int, int]
"""Node, micro-batch and trip of what is kept; a node has one step at a time."""


@dataclass(frozen=True)
class ActivationServerSpec:
    """How to build an activation server."""

    index: int

    @property
    def name(self) -> str:
        return activation_server_name(self.index)

    def build(self, context: RoleContext) -> ActivationServer:
        return ActivationServer(self, context)


class ActivationServer:
    """The role of one activation server."""

    def __init__(self, spec: ActivationServerSpec, context: RoleContext) -> None:
        self.name = spec.name
        self.spec = spec
        self.context = context
        self.installed: dict[ProgramKind, Installation] = {}

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says."""
        match command:
            case Install(installation):
                self.installed[installation.kind] = installation
            case _:
                raise not_taken(self.name, command)

    def begin(self, job: Job) -> ActivationServerJob:
        return ActivationServerJob(self, job)


class ActivationServerJob(JobState[ActivationServer]):
    """One job of an activation server: what it keeps, and how many pieces are still to go back."""

    def __init__(self, role: ActivationServer, job: Job) -> None:
        super().__init__(role)
        installed = role.installed[job.kind]
        rounds = job.rounds_of(installed.rounds)
        each = installed.trips.num_of(role.spec.index)
        self._num_left = each * job.verification.num_taken(job.steps, rounds)
        self._nodes = tuple(map(node_name, range(rounds.num_nodes)))
        self._kept: dict[Piece, Slab] = {}
        self._kind = job.kind
        self._held_bytes = self._peak_bytes = 0
        self._log = ActivityLog(job.trace_limit)

    def start(self) -> Iterator[Envelope]:
        """Yield nothing: nodes send first."""
        return iter(())

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        node = envelope.source
        match envelope.message:
            case StashReady(step, micro_batch, trip, payload):
                place, detail = Place(self._kind, step), f"micro-batch {micro_batch} of {node}"
                with self._log.during("keep", place, detail, payload.num_bytes):
                    self._kept[node, micro_batch, trip] = self._copied(payload)
                yield self.envelope(node, StashReleased(step, micro_batch, trip))
            case StashWanted(step, micro_batch, trip):
                kept = self._kept[node, micro_batch, trip]
                yield self.envelope(node, StashReady(step, micro_batch, trip, kept))
            case StashReleased(_, micro_batch, trip):
                kept = self._kept.pop((node, micro_batch, trip))
                self._held_bytes -= kept.num_bytes
                kept.free()
                self._num_left -= 1
            case message:
                raise self.refusal(message)

    @property
    def finished(self) -> bool:
        return self._num_left == 0

    def report(self) -> Report:
        log, peak = self._log, {"activations": self._peak_bytes}
        return Report(
            self.role.name, peak_bytes=peak, intervals=log.intervals, num_lost=log.num_lost
        )

    def waits_for(self) -> Waiting:
        return Waiting("activations that leave a system or are wanted back", self._nodes)

    def _copied(self, payload: Payload) -> Slab:
        context = self.role.context
        slab = context.arena.allocate(payload.num_bytes)
        with context.cores.lease():
            slab.view(torch.uint8).copy_(payload.view(torch.uint8))
        self._held_bytes += slab.num_bytes
        self._peak_bytes = max(self._peak_bytes, self._held_bytes)
        return slab
