"""The calls and the checkpoint from which a replacement cluster is rebuilt.

base    the newest checkpoint with weights and optimizer state, or a private one of the moment
        before the first step; with it the standing of the coordinator
calls   all that has changed the cluster since
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.coordinator.cluster import Cluster, Standing
from appliance.recovery.held_file import HeldFile
from wsc.checkpoint import CLUSTER_STATES
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import Mode
from wsc.core.roles.installation import Installation

Call = Callable[[Cluster], Any]


@dataclass(frozen=True)
class _Base:
    """A checkpoint, and what belongs to the same moment but is not in it."""

    file: HeldFile
    step: int
    standing: Standing
    installed: Mapping[Mode, Installation]
    restores: Sequence[Call]  # of optimizer state and masks that no program has asked for yet


class History:
    """A base and the calls made since.

    Attributes:
        last_step: Last step of training that is done.
    """

    def __init__(self) -> None:
        self.last_step = 0
        self._base: _Base | None = None
        self._calls: list[Call] = []
        self._installed: dict[Mode, Installation] = {}
        self._restores: list[Call] = []
        self._held: list[HeldFile] = []  # checkpoints that were restored since the base

    @property
    def has_begun(self) -> bool:
        """Whether there is a base, so that a lost cluster can be followed by another."""
        return self._base is not None

    @property
    def first_step(self) -> int:
        """Step of the base, 0 without one."""
        return 0 if self._base is None else self._base.step

    @property
    def num_calls(self) -> int:
        """Number of calls since the base."""
        return len(self._calls)

    def note(self, call: Call) -> None:
        """Remember a call that has changed the cluster."""
        self._calls.append(call)

    def note_program(self, installation: Installation) -> None:
        """Remember which program of its mode is installed."""
        self._installed[installation.mode] = installation
        if installation.mode == "train":
            self._restores.clear()

    def note_optimizer(self, optimizer: OptimizerSpec) -> None:
        """Remember that training goes on with another update."""
        self._installed["train"] = replace(self._installed["train"], optimizer=optimizer)

    def note_restoring(self, file: HeldFile, states: Collection[str], strict: bool) -> None:
        """Remember that states were read from a checkpoint, and keep the file open."""
        self._held.append(file)
        self._calls.append(lambda cluster: _restore(cluster, file, states, strict))
        later = [state for state in CLUSTER_STATES if state in states and state != "model"]
        if later and "train" not in self._installed:
            self._restores.append(lambda cluster: _restore(cluster, file, later, strict))

    def is_whole(self, states: Collection[str]) -> bool:
        """Return whether states are all that the weight servers hold; masks are there by rule."""
        training = self._installed.get("train")
        is_sparse = bool(training and training.optimizer and training.optimizer.sparsity)
        return set(states) >= CLUSTER_STATES.keys() - (set() if is_sparse else {"sparsity"})

    def begin_at(self, file: HeldFile, step: int, standing: Standing) -> None:
        """Make a checkpoint of this moment the base, and forget the calls before."""
        before, held = self._base, self._held
        self.last_step = step
        self._base = _Base(file, step, standing, dict(self._installed), tuple(self._restores))
        self._calls = []
        if not self._restores:
            self._held = []
            for old in held:
                old.close()
        if before is not None:
            before.file.close()

    def restore(self, cluster: Cluster) -> None:
        """Bring a new cluster to the moment of the base."""
        base = self._base
        assert base is not None
        for installation in base.installed.values():
            cluster.install(installation)
        _restore(cluster, base.file, CLUSTER_STATES, strict=True)
        for restore in base.restores:
            restore(cluster)
        cluster.take_over(base.standing)

    def repeat(self, cluster: Cluster) -> None:
        """Make all calls since the base once more."""
        for call in self._calls:
            call(cluster)

    def close(self) -> None:
        """Let all files go. Idempotent."""
        for file in [*self._held, *([self._base.file] if self._base else [])]:
            file.close()


def _restore(cluster: Cluster, file: HeldFile, states: Collection[str], strict: bool) -> None:
    with file.named() as path:
        cluster.restore(path, states, strict)
