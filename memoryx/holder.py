"""What a weight server and its replica have in common: the parameters that one server owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from memoryx.memory.flash import FlashMemory
from memoryx.memory.flash_spec import FlashSpec
from memoryx.store.journal import Journal
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from waferstream.core.digest import weights_digest
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import ProgramKind, TensorSpec
from waferstream.core.program.stream_plan import assign_servers
from waferstream.core.roles.commands import (
    Digest,
    Fill,
    FinishSaving,
    Install,
    ReadLayout,
    ReadMasters,
    ReadProgress,
    ReadStepsHeld,
    Restore,
    Rollback,
    Save,
    TrainWith,
)
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Command, Job, Progress, not_taken
from waferstream.host.disk import LOCAL_DISK, Disk


class HeldJob(Protocol):
    """A job that updates weights; its steps can be taken back if it has a number of attempt."""

    attempt: int

    def progress(self) -> Progress:
        """Return how far the job is."""

    def steps_held(self) -> frozenset[int]:
        """Return the steps after which the weights stand."""


class Holder:
    """A role with the parameters of weight server ``index``: masters and optimizer state."""

    def __init__(
        self,
        name: str,
        index: int,
        num_servers: int,
        parameters: Sequence[TensorSpec],
        disk: Disk = LOCAL_DISK,
        flash: FlashSpec | None = None,
    ) -> None:
        self.name = name
        owner = assign_servers(parameters, num_servers)
        own = tuple(p for p in parameters if owner[p.name] == index)
        self.store = WeightStore(own, FlashMemory(flash) if flash else None)
        self.installed: dict[ProgramKind, Installation] = {}
        self.persistence = Persistence(self.store, name, disk)
        self.journal = Journal(self.store)
        self.last_job: HeldJob | None = None

    def do(self, command: Command[Any]) -> Any:  # noqa: PLR0912 (a case for each command)
        """Do what a command says; return its result."""
        match command:
            case Install(installation):
                self._install(installation)
            case TrainWith(optimizer):
                self._train_with(optimizer)
            case Fill(values, state):
                self.store.fill(values, state)
            case ReadLayout(states):
                return self.persistence.layout(states)
            case Save(path, offsets, is_background):
                self.persistence.save(path, offsets, is_background)
            case FinishSaving():
                self.persistence.finish_saving()
            case Restore(path, state, strict):
                self.persistence.restore(path, state, strict)
            case ReadMasters(names, state):
                own = self.store.tensors(state)
                return [own[name].numpy().copy() for name in names]
            case Digest():
                masters = self.store.tensors("model")
                return weights_digest((name, own.numpy()) for name, own in masters.items())
            case ReadProgress():
                job = self.last_job
                return None if job is None or not job.attempt else job.progress()
            case ReadStepsHeld():
                return frozenset() if self.last_job is None else self.last_job.steps_held()
            case Rollback(attempt, step):
                if self.last_job is not None and self.last_job.attempt == attempt:
                    self.journal.rollback(step)
            case _:
                raise not_taken(self.name, command)
        return None

    def _install(self, installation: Installation) -> None:
        self.installed[installation.kind] = installation
        if installation.optimizer is not None:
            self._store_for(installation.optimizer)
            self.persistence.catch_up()

    def _train_with(self, optimizer: OptimizerSpec) -> None:
        trained = replace(self.installed[ProgramKind.TRAIN], optimizer=optimizer)
        self.installed[ProgramKind.TRAIN] = trained
        self._store_for(optimizer)
        self.store.make_masks()

    def _store_for(self, optimizer: OptimizerSpec) -> None:
        """Let the store take the form of an optimizer; tensors that move are not being saved."""
        if optimizer.sparsity or self.store.packings:
            self.persistence.finish_saving()
        self.store.train_with(optimizer)

    def note_begin(self, begun: HeldJob, job: Job) -> None:
        """Note a job that begins; a full disk is found now, not when the journal is written."""
        self.journal.forget()  # what happened before this job stays
        self.last_job = begun
        if job.is_protected and self.store.memory.is_bounded:
            self.journal.reserve(self.store.states)
