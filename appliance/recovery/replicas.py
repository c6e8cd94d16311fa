"""Roles whose weight servers have replicas: a lost one of a pair is filled from the other.

What changes a weight server changes its replica, too. Where both live, they are one step apart at
most, and a step counts as applied when both have applied it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from appliance.coordinator.roles import RecoverableRoles, in_parts
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.errors import ApplianceRuntimeServerError, WaferStreamError
from waferstream.core.messages.watch import NOTHING
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import (
    Fill,
    FinishSaving,
    Install,
    ReadLayout,
    ReadMasters,
    ReadProgress,
    Restore,
    Rollback,
)
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Command, Job, Progress, Report, RoleSpec


class ReplicatedRoles:
    """Roles of one cluster, in which every weight server has a replica.

    New roles get the programs by ``Install``, and their weights before the next command that needs
    some.

    Args:
        roles: The roles themselves.
        replicas: The replica of each weight server.
    """

    def __init__(self, roles: RecoverableRoles, replicas: Mapping[str, str]) -> None:
        self._roles = roles
        self._replica = replicas
        self._partner = {**replicas, **{replica: server for server, replica in replicas.items()}}
        self._empty: set[str] = set()  # new servers and replicas without weights
        self._installed: dict[ProgramKind, Installation] = {}
        self._notes_norms = False  # whether the job leaves values that replicas lack
        # Optimizer state and masks to restore, by server and state.
        self._postponed: dict[tuple[str, str], tuple[Path, bool]] = {}

    def run(self, job: Job) -> list[Report]:
        program = self._installed[job.kind].program
        self._notes_norms = bool(program.norms.inputs) or job.watch != NOTHING
        reports = self._filled().run(job)
        self._notes_norms = False
        return reports

    def do(self, to: Collection[str] | None, command: Command[Any]) -> dict[str, Any]:
        """Let roles do what a command says; what changes a server changes its replica."""
        if to is None:
            found = self._filled().do(None, command)
            self._note(command)
            return found
        match command:
            case Install() | FinishSaving():  # neither needs weights
                return self._roles.do(to, command)
            case ReadProgress():
                return {server: self._progress(server) for server in to}
            case Rollback():
                return self._roles.do([n for n in self._pairs(to) if n not in self._empty], command)
        found = self._filled().do(self._pairs(to) if command.changes else to, command)
        self._note(command, to)
        return {server: found[server] for server in to}

    def _note(self, command: Command[Any], to: Collection[str] = ()) -> None:
        """Note what new roles have to get, too."""
        match command:
            case Install(installation):
                self._installed[installation.kind] = installation
                if installation.kind.updates:
                    self._postponed.clear()
            case Restore(path, state, strict) if (
                state != "model" and ProgramKind.TRAIN not in self._installed
            ):
                self._postponed |= {(server, state): (path, strict) for server in to}

    def abort(self) -> Mapping[str, WaferStreamError]:
        """End the job on every role; return the roles that are lost, each with its error.

        Servers and replicas that are still empty count as lost. So does the replica of a lost
        server which alone had values of finished steps: norms that the program or the job asks for.
        """
        lost = {**{name: _is_empty(name) for name in self._empty}, **self._roles.abort()}
        if self._notes_norms:
            lost |= {
                self._replica[name]: error for name, error in lost.items() if name in self._replica
            }
        return lost

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        return self._roles.settle(servers)

    def rebuild(self, specs: Sequence[RoleSpec], lost: Collection[str]) -> frozenset[str]:
        self._empty |= self._partner.keys() & set(lost)  # even if the next line fails half way
        new = self._roles.rebuild(specs, lost)
        self._empty |= new & self._partner.keys()
        return new

    def prepare(self) -> None:
        self._roles.prepare()

    def _progress(self, server: str) -> Progress | None:
        """Return how far a server and its replica came, as far as they live."""
        living = [name for name in self._pair(server) if name not in self._empty]
        found = list(self._roles.do(living, ReadProgress()).values())
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found):
            return None
        oldest = min(known, key=lambda one: one.attempt)
        if any(one.attempt != oldest.attempt for one in known):
            return oldest  # of an earlier attempt: nothing of this one is done
        report = known[0].report
        for other in known[1:]:
            report = replace(report, results={**other.report.results, **report.results})
        applied_step = min(one.applied_step for one in known)
        return Progress(oldest.attempt, applied_step, max(o.kept_step for o in known), report)

    def shutdown(self) -> None:
        self._roles.shutdown()

    def _pair(self, server: str) -> tuple[str, str]:
        return server, self._replica[server]

    def _pairs(self, servers: Collection[str]) -> list[str]:
        return [name for server in servers for name in self._pair(server)]

    def _filled(self) -> RecoverableRoles:
        """Return the roles, of which none is empty."""
        for name in sorted(self._empty):
            source = self._partner[name]
            if source in self._empty:
                raise _is_empty(name)
            for state in CLUSTER_STATES:
                for part in self._parts(source, state):
                    values = self._roles.do([source], ReadMasters(part, state))[source]
                    tensors = map(torch.from_numpy, values)
                    self._roles.do([name], Fill(dict(zip(part, tensors, strict=True)), state))
            server = name if name in self._replica else source
            for state in CLUSTER_STATES:
                if (server, state) in self._postponed:
                    path, strict = self._postponed[server, state]
                    self._roles.do([name], Restore(path, state, strict))
            self._empty.discard(name)
        return self._roles

    def _parts(self, source: str, state: str) -> Iterator[list[str]]:
        """Yield the names of all tensors of a state, a few at a time."""
        prefix = f"{CLUSTER_STATES[state]}."
        layout = self._roles.do([source], ReadLayout((state,)))[source]
        sizes = {spec.name: spec.num_bytes for spec in layout if spec.name.startswith(prefix)}
        yield from in_parts({name.removeprefix(prefix): size for name, size in sizes.items()})


def _is_empty(name: str) -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "a weight server and its replica are lost",
        code="weights-lost",
        where=name,
        rule="one of both has the weights",
        remedy="run the same command again: it goes on from the last checkpoint",
    )
