"""The batches that an executor loop yields to the user's program.

On CSX the program sees the first batch only, again and again, since input workers read the data. On
CPU and GPU it sees the batches that workers would read: training goes on where it stopped, and an
evaluation begins with the first batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.session.host_steps import HostSteps
from cstorch.session.session import Session
from cstorch.utils.data.dataloader import DataLoader
from waferstream.core.program.program import ProgramKind


class FirstBatch:
    """The first batch of a loader, for every iteration."""

    def __init__(self, dataloader: DataLoader) -> None:
        self._batch, self.leaves = dataloader.first

    def read(self, iteration: int) -> Any:  # noqa: ARG002
        """Return the batch of an iteration, counted from 0."""
        return self._batch

    def for_kind(self, kind: ProgramKind, arguments: Any) -> Any:  # noqa: ARG002
        """Return the arguments of a step unchanged."""
        return arguments


class EveryBatch:
    """The batches of a loader in order, on the device of a CPU or GPU session.

    What the loop does is known after its first step only, unless it did the same before. Until then
    a model in evaluation mode is taken to be evaluated.
    """

    def __init__(self, session: Session, host: HostSteps, dataloader: DataLoader) -> None:
        self._host, self._dataloader = host, dataloader
        self._global_step = session.global_step
        trains = session.model.module is None or session.model.module.training
        guess = ProgramKind.TRAIN if trains else ProgramKind.EVAL
        self._kind = host.kind_of.get(dataloader.source, guess)
        self._iteration = 0
        self.leaves: list[torch.Tensor] = []

    def read(self, iteration: int) -> Any:
        """Return the batch of an iteration, counted from 0."""
        self._iteration = iteration
        trained = self._global_step + self._dataloader.offset
        first = trained if self._kind.updates else 0
        batch, _ = self._dataloader.batch(first + iteration)
        batch = pytree.tree_map_only(torch.Tensor, self._on_device, batch)
        self.leaves = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
        return batch

    def for_kind(self, kind: ProgramKind, arguments: Any) -> Any:
        """Return the arguments of a step with the tensors of the batch that its kind reads."""
        self._host.kind_of[self._dataloader.source] = kind
        if kind == self._kind:
            return arguments
        self._kind = kind
        if not self._global_step + self._dataloader.offset:
            return arguments
        before = self.leaves
        self.read(self._iteration)

        def replaced(tensor: torch.Tensor) -> torch.Tensor:
            places = (new for old, new in zip(before, self.leaves, strict=True) if old is tensor)
            return next(places, tensor)

        return pytree.tree_map_only(torch.Tensor, replaced, arguments)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._host.device)


def batches_of(session: Session, dataloader: DataLoader) -> FirstBatch | EveryBatch:
    """Return the batches of a loop over a loader."""
    if session.host is not None:
        return EveryBatch(session, session.host, dataloader)
    return FirstBatch(dataloader)
