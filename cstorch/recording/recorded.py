"""What a recorder sees of the optimizer, the schedulers and the scaler of a traced step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.optimizer import LossScale, LossScaleRule, OptimizerSpec


class RecordedScheduler(Protocol):
    """The part of a scheduler that the recorder uses: a hyper-parameter that follows a schedule."""

    @property
    def key(self) -> str:
        """The hyper-parameter."""

    @property
    def optimizer(self) -> object:
        """The optimizer whose groups it sets."""

    @property
    def offset(self) -> int:
        """Steps that the scheduler had taken before step 1 of training."""

    @property
    def num_loads(self) -> int:
        """How often its count was loaded."""

    def start_at(self, done: int, resumed: int) -> None:
        """Note how many steps are done, and after which one this program began."""

    def schedule_of(self, group: Mapping[str, Any]) -> HyperSchedule:
        """Return its value at each step, for a parameter group."""

    @property
    def last_epoch(self) -> int:
        """The number of steps that it has counted."""

    def cover(self, num_steps: int) -> None:
        """Make the schedule known for at least ``num_steps`` steps of its own count."""

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Return whether the scheduler sets the hyper-parameter of a parameter group."""

    def note_done(self, steps: int) -> None:
        """Note how many steps have been done on the cluster."""


class RecordedState(Protocol):
    """The part of the state of an optimizer that the recorder uses."""

    @property
    def updates(self) -> int:
        """Updates that it has seen."""

    def note_done(self, steps: int) -> None:
        """Note how many steps of training have been applied since step 1."""


class RecordedOptimizer(Protocol):
    """The part of an optimizer that the recorder uses."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Its parameter groups."""

    @property
    def remote_state(self) -> RecordedState:
        """Its state, held by MemoryX (``optim.state.state_of``)."""

    def spec(
        self,
        names: Mapping[torch.Tensor, str],
        schedulers: Sequence[RecordedScheduler],
        done: int,
        num_steps: int,
    ) -> OptimizerSpec:
        """Return the update as data; arguments as of ``Recorder.spec``."""

    def joined_with(self, other: RecordedOptimizer) -> RecordedOptimizer:
        """Return this optimizer and another one of the same step, as one."""

    def report_sparsity(self, updates: int) -> None:
        """Call the hooks of the sparsity after so many steps of training."""

    def hooks(self) -> tuple[Any, ...]:
        """Return the hooks of its steps."""

    def settings(self, schedulers: Sequence[RecordedScheduler]) -> list[object]:
        """Return all that decides further updates and that no scheduler sets."""


class RecordedScaler(Protocol):
    """The part of a dynamic loss scale that the recorder uses."""

    rule: LossScaleRule
    current: LossScale
