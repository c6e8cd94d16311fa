"""Base of all schedulers: a step count, and a HyperSchedule with the value at each step.

MemoryX evaluates the schedule by itself at every step (``ParamGroup.at``). The count and the
current values in the parameter groups are for people and checkpoints. A traced step is recorded
once and run often, so the executor loop reports the number of steps done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch

from cstorch.optim.recorder import active_recorder
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import SCHEDULES, HyperSchedule, build_schedule

Tags = str | Collection[str | None] | None


class Scheduler:
    """Base class: sets the hyper-parameter ``key`` of parameter groups by the step.

    Args:
        optimizer: The optimizer whose groups are set.
        param_group_tags: Sets only groups that carry one of these ``tags`` (None stands for groups
            without tags); by default all groups.
        args: Those of the schedule ``kind`` in ``wsc.core.hyper_schedules``; the parts of a
            sequence may be schedulers.
    """

    key: ClassVar[str]
    kind: ClassVar[type[HyperSchedule]]

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, param_group_tags: Tags = None, **args: Any
    ) -> None:
        self.optimizer = optimizer
        self._tags = None if param_group_tags is None else _tag_set(param_group_tags)
        self.schedule = self._build(args)
        self.last_epoch = 0  # torch's name for the number of steps taken
        if not any(self.sets(group) for group in optimizer.param_groups):
            raise ConfigError(
                "no parameter group carries a tag of the scheduler",
                code="scheduler-without-group",
                where=type(self).__name__,
                value=param_group_tags,
            )
        self._write()

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Return whether this scheduler sets ``key`` of a parameter group."""
        return self._tags is None or bool(self._tags & _tag_set(group.get("tags")))

    def step(self) -> None:
        """Count one step; inside a trace, record that the hyper-parameter follows the schedule."""
        recorder = active_recorder.get()
        if recorder is None:
            self.note_done(self.last_epoch + 1)
        else:
            recorder.step_scheduler(self)

    def note_done(self, steps: int) -> None:
        """Set the number of steps done, and the groups to the values of the next step."""
        self.last_epoch = steps
        self._write()

    def state_dict(self) -> dict[str, int]:
        """Return the number of steps taken; all else is configuration."""
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue from the step count of another scheduler."""
        self.note_done(state_dict["last_epoch"])

    def _build(self, args: Mapping[str, Any]) -> HyperSchedule:
        if "schedulers" in args:
            parts = [
                part.schedule if isinstance(part, Scheduler) else part
                for part in args["schedulers"]
            ]
            args = {**args, "schedulers": parts}
        return build_schedule(self.kind.__name__, args, type(self).__name__)

    def _write(self) -> None:
        value = self.schedule.at(self.last_epoch)
        for group in self.optimizer.param_groups:
            if self.sets(group):
                group[self.key] = value


def scheduler_classes(base: type[Scheduler], suffix: str) -> dict[str, type[Scheduler]]:
    """Return a subclass of ``base`` for every schedule, by name, with ``suffix`` for LR."""
    classes: dict[str, type[Scheduler]] = {}
    for schedule, kind in SCHEDULES.items():
        name = schedule.removesuffix("LR") + suffix
        attributes = {"__doc__": kind.__doc__, "__module__": base.__module__, "kind": kind}
        classes[name] = type(name, (base,), attributes)
    return classes


def _tag_set(tags: Tags) -> set[str | None]:
    if tags is None or isinstance(tags, str):
        return {tags}
    return set(tags)
