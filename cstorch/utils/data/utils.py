"""Steps of loops: their number, and schedules of actions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from cstorch.utils.data.dataloader import DataLoader
from waferstream.core.errors import ConfigError


@dataclass
class ScheduleRange:
    """Steps ``start``, ``start + step``, ... before ``end``, counted from 0.

    With ``include_last`` the last step before ``end`` counts in any case; None for ``end`` means no
    end.
    """

    start: int = 0
    end: int | None = None
    step: int = 1
    include_last: bool = False

    def range(self) -> range:
        """Return the steps without the additional last one."""
        return range(self.start, _FAR if self.end is None else self.end, self.step)

    def match(self, step: int) -> bool:
        """Return whether the step is one of these."""
        return step in self.range() or step == self._last()

    def next_immediate_step(self, step: int) -> int:
        """Return the first of these steps from ``step`` on, or the end if there is none."""
        regular = self.range()
        late = max(0, math.ceil((step - self.start) / self.step))
        if late < len(regular):
            return regular[late]
        last = self._last()
        if last is not None and step <= last:
            return last
        return regular.stop

    def _last(self) -> int | None:
        """Return the last step if it counts in any case."""
        return self.end - 1 if self.include_last and self.end is not None else None

    def __iter__(self) -> Iterator[int]:
        yield from self.range()
        last = self._last()
        if last is not None and last >= self.start and last not in self.range():
            yield last

    def __len__(self) -> int:
        last = self._last()
        is_extra = last is not None and last >= self.start and last not in self.range()
        return len(self.range()) + is_extra


_FAR = 2**31 - 1
"""More steps than a loop can have."""


@dataclass
class Schedule:
    """Steps of a loop, counted from 0, as a union of ranges."""

    Range = ScheduleRange

    ranges: Sequence[ScheduleRange]

    def match(self, step: int) -> bool:
        """Return whether any range has the step."""
        return any(part.match(step) for part in self.ranges)

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int) and self.match(step)


def infer_batch_size(batch: Any) -> int | None:
    """Return the rows of all tensors of a batch; None if they differ or there are none."""
    leaves = [leaf for leaf in pytree.tree_iter(batch) if isinstance(leaf, torch.Tensor)]
    sizes = {leaf.shape[0] if leaf.dim() else None for leaf in leaves}
    return sizes.pop() if len(sizes) == 1 else None


def compute_num_steps(
    dataloader: DataLoader,
    initial_step: int = 0,
    num_steps: int | None = None,
    max_steps: int | None = None,
    num_epochs: int | None = None,
    steps_per_epoch: int | None = None,
    grad_accum_steps: int = 1,
) -> int:
    """Return the steps of a loop.

    Args:
        dataloader: The source of its batches.
        initial_step: Steps that were done before.
        num_steps: Steps of the loop; excludes ``num_epochs``.
        max_steps: Steps that are done in the end, with those before.
        num_epochs: Epochs of the loop.
        steps_per_epoch: Steps of an epoch, at most those of the loader (the default).
        grad_accum_steps: Batches of a step.

    Raises:
        ConfigError: Arguments exclude each other, or no step is left.
    """
    if num_steps is not None and num_epochs is not None:
        raise ConfigError(
            "num_steps and num_epochs exclude each other",
            code="num-steps-and-num-epochs",
            value=f"{num_steps} and {num_epochs}",
        )
    limits: list[float] = [] if num_steps is None else [num_steps]
    if max_steps is not None:
        limits.append(max_steps - initial_step)
    if num_epochs is not None:
        epoch = _steps_in_epoch(dataloader, steps_per_epoch, grad_accum_steps)
        limits.append(num_epochs * epoch)
    if not limits:
        raise ConfigError(
            "the length of a loop must be given",
            code="loop-length-unknown",
            rule="num_steps, max_steps or num_epochs",
        )
    steps = int(min(limits))
    if steps < 1:
        raise ConfigError(
            "a loop must have at least one step",
            code="no-step-left",
            value=f"{steps} after {initial_step} steps",
            remedy="raise max_steps, or give num_steps",
        )
    return steps


def _steps_in_epoch(
    dataloader: DataLoader, steps_per_epoch: int | None, grad_accum_steps: int
) -> int:
    try:
        batches: int | None = len(dataloader)
    except TypeError:
        batches = None
    if batches is None and steps_per_epoch is None:
        raise ConfigError(
            "the length of an epoch must be given",
            code="epoch-length-unknown",
            rule="steps_per_epoch, or a loader with a length",
        )
    in_loader = _FAR if batches is None else batches // grad_accum_steps
    if steps_per_epoch is not None and steps_per_epoch > in_loader:
        raise ConfigError(
            "steps_per_epoch must not exceed the steps of an epoch",
            code="steps-per-epoch-exceed-epoch",
            value=steps_per_epoch,
            rule=f"the loader has batches for {in_loader}",
            remedy="leave steps_per_epoch out, or state the steps of the loop by num_steps",
        )
    return min(in_loader, steps_per_epoch or in_loader)
