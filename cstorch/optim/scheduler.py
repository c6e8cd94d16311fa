"""Base of all schedulers: a step count, and a HyperSchedule with the value at each step.

MemoryX evaluates the schedule by itself at every step (``ParamGroup.at``). The count and the
current values in the parameter groups are for people and checkpoints. A traced step is recorded
once and run often, so the executor loop reports the number of steps done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch

from cstorch.recording.recorder import active_recorder
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import HyperSchedule, Key, scheduler_name
from waferstream.core.hyper_schedules.build import argument_names, build_schedule

Tags = str | Collection[str | None] | None


class Scheduler:
    """Base class: sets the hyper-parameter ``key`` of parameter groups by the step.

    Args:
        optimizer: The optimizer whose groups are set.
        param_group_tags: Sets only groups that carry one of these ``tags`` (None stands for groups
            without tags); by default all groups. It follows the arguments of the schedule.
        args: Those of the schedule ``kind`` in ``waferstream.core.hyper_schedules``, by name or in
        its
            order; the parts of a sequence may be schedulers.
    """

    key: ClassVar[Key]
    kind: ClassVar[type[HyperSchedule]]

    def __init__(self, optimizer: torch.optim.Optimizer, *args: Any, **named: Any) -> None:
        arguments = self._by_name(args, named)
        tags = arguments.pop("param_group_tags", None)
        if not hasattr(optimizer, "remote_state"):
            raise ConfigError(
                "a scheduler of cstorch must get an optimizer of cstorch",
                code="scheduler-of-foreign-optimizer",
                where=type(self).__name__,
                value=type(optimizer).__name__,
                rule="MemoryX evaluates the schedule, and updates with cstorch's optimizers",
                remedy="cstorch.optim has torch's optimizers",
            )
        self.optimizer = optimizer
        self._tags = None if tags is None else _tag_set(tags)
        self._arguments = arguments
        self._parts = [part for part in _leaves(arguments) if isinstance(part, Scheduler)]
        self._refuse_foreign_parts()
        self.schedule = self._build()
        self.last_epoch = 0  # torch's name for the number of steps taken
        self.offset = 0
        """Steps taken before step 1 of training; negative if it began later."""
        self.num_loads = 0
        """How often a count was loaded, so that a changed offset is noticed."""
        self._is_loaded = self._has_started = False  # since, and whether, the offset was set
        if not any(self.sets(group) for group in optimizer.param_groups):
            raise ConfigError(
                "no parameter group carries a tag of the scheduler",
                code="scheduler-without-group",
                where=type(self).__name__,
                value=tags,
            )
        self._write()

    @property
    def param_group_key(self) -> Key:
        """The hyper-parameter that it sets, under the vendor's name."""
        return self.key

    @property
    def param_group_tags(self) -> set[str | None] | None:
        """The tags of the groups that it sets; None for all groups."""
        return self._tags

    @classmethod
    def argument_names(cls) -> tuple[str, ...]:
        """Return the names of the schedule's arguments, in the order of the constructor."""
        return tuple(argument_names(cls.kind, cls.key).values())

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Return whether this scheduler sets ``key`` of a parameter group."""
        return self._tags is None or bool(self._tags & _tag_set(group.get("tags")))

    def schedule_of(self, group: Mapping[str, Any]) -> HyperSchedule:  # noqa: ARG002
        """Return the schedule that a parameter group follows."""
        return self.schedule

    def step(self) -> None:
        """Count one step; inside a trace, record that the hyper-parameter follows the schedule."""
        recorder = active_recorder.get()
        if recorder is None:
            self._set_count(self.last_epoch + 1)
        else:
            recorder.step_scheduler(self)

    def start_at(self, done: int, resumed: int) -> None:
        """Note how many steps of training are done; a count that was loaded continues from there.

        Any other follows the steps of training after ``resumed``, the first ones of this program.
        """
        if self._is_loaded:
            self.offset, self._is_loaded = self.last_epoch - done, False
        elif not self._has_started:
            self.offset = -resumed
        self._has_started = True

    def note_done(self, steps: int) -> None:
        """Note the steps of training done, and set the groups to the values of the next step."""
        self._set_count(steps + self.offset)

    def cover(self, num_steps: int) -> None:
        """Make the schedule known for at least ``num_steps`` steps of its own count.

        Most schedules are formulas; those of LambdaLR are tables, which grow here.
        """
        if self._parts:
            for part in self._parts:
                part.cover(num_steps)
            self.schedule = self._build()

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps taken, and the values then; all else is configuration."""
        self._settle()
        values = [group[self.key] for group in self.optimizer.param_groups if self.sets(group)]
        return {"last_epoch": self.last_epoch, f"_last_{self.key}": values}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the step count of another scheduler, ours or torch's."""
        self._settle()
        self._set_count(int(state_dict["last_epoch"]))
        self._is_loaded = True
        self.num_loads += 1

    def _settle(self) -> None:
        """Run the steps that the user has called; a dynamic loss scale may skip some of them."""
        state = getattr(self.optimizer, "remote_state", None)
        if state is not None:
            state.settle()

    def _set_count(self, steps: int) -> None:
        self.cover(steps + 1)
        self.last_epoch = steps
        self._write()

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name.

        Raises:
            ConfigError: There are too many, or one is given twice.
        """
        where, names = type(self).__name__, (*self.argument_names(), "param_group_tags")
        if len(args) > len(names):
            raise ConfigError(
                "a scheduler got more arguments than it takes",
                code="too-many-arguments",
                where=where,
                value=f"{len(args)} after the optimizer",
                rule=f"{where}(optimizer, {', '.join(names)})",
            )
        given = dict(zip(names, args, strict=False))
        if twice := [name for name in given if name in named]:
            raise ConfigError(
                "an argument of a scheduler is given by position and by name",
                code="argument-given-twice",
                where=where,
                value=", ".join(twice),
                rule=f"{where}(optimizer, {', '.join(names)})",
            )
        return {**given, **named}

    def _refuse_foreign_parts(self) -> None:
        for part in self._parts:
            if part.key != self.key:
                raise ConfigError(
                    "a scheduler and its parts must set the same hyper-parameter",
                    code="part-of-other-family",
                    where=type(self).__name__,
                    value=type(part).__name__,
                    rule=f"every part sets {self.key}",
                )
            if part.optimizer is not self.optimizer or part._tags != self._tags:
                raise ConfigError(
                    "a scheduler and its parts must have the same optimizer and param_group_tags",
                    code="part-of-other-groups",
                    where=type(self).__name__,
                    value=type(part).__name__,
                )

    def _build(self) -> HyperSchedule:
        arguments = {name: _schedules(value) for name, value in self._arguments.items()}
        name = scheduler_name(self.kind.__name__, self.key)
        return build_schedule(name, arguments, type(self).__name__)

    def _write(self) -> None:
        for group in self.optimizer.param_groups:
            if self.sets(group):
                group[self.key] = self.schedule_of(group).at(self.last_epoch)


class SequentialScheduler(Scheduler):
    """Base of the schedulers that follow one another."""


class PiecewiseConstantScheduler(SequentialScheduler):
    """Base of the schedulers whose values are constant between milestones."""


class ChainedScheduler(Scheduler):
    """Base of the schedulers whose values are multiplied."""


def _leaves(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the arguments, and the entries of those that are lists."""
    values = list(arguments.values())
    return values + [
        entry for value in values if isinstance(value, list | tuple) for entry in value
    ]


def _schedules(value: Any) -> Any:
    """Return an argument with schedules in place of schedulers."""
    if isinstance(value, Scheduler):
        return value.schedule
    return [_schedules(entry) for entry in value] if isinstance(value, list | tuple) else value


def _tag_set(tags: Tags) -> set[str | None]:
    if tags is None or isinstance(tags, str):
        return {tags}
    return set(tags)
