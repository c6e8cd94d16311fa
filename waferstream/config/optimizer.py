"""``trainer.init.optimizer`` and ``trainer.init.schedulers``: classes with their arguments.

``{Class: {arguments}}`` and ``[{Class: {arguments}}]`` (cluster_interface.md, sections 3.4 and
3.5). Classes, arguments and defaults are those of the rules in ``memoryx.optim`` and of the
schedules in ``wsc.core.hyper_schedules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union, get_type_hints

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    Tag,
    create_model,
)

from memoryx.optim.rule import RULES, Rule
from waferstream.config.section import Named, class_name, one_or_many
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import SCHEDULES, HyperSchedule, build_schedule

_LR = Field(validation_alias=AliasChoices("lr", "learning_rate"))


class Optimizer(Named):
    """An optimizer with its hyper-parameters; every rule has a subclass of its name."""

    lr: Annotated[NonNegativeFloat | None, _LR] = None
    """None where a scheduler, or the rule itself, gives it."""

    @property
    def needs_lr(self) -> bool:
        """Whether a rate has to be given, here or by a scheduler."""
        return RULES[self.class_name].needs_lr(self.arguments())


def _section_of(rule: Rule) -> type[Optimizer]:
    hints = get_type_hints(rule.Arguments, include_extras=True)
    fields: dict[str, Any] = {
        name: (Annotated[hints[name], _LR] if name == "lr" else hints[name], field.default)
        for name, field in rule.Arguments.model_fields.items()
    }
    return create_model(rule.name, __base__=Optimizer, __doc__=type(rule).__doc__, **fields)


OPTIMIZERS = {name: _section_of(rule) for name, rule in RULES.items()}
"""The sections of params.yaml by class name."""

if TYPE_CHECKING:
    OptimizerConfig = Optimizer
else:
    _TAGGED = tuple(Annotated[kind, Tag(name)] for name, kind in OPTIMIZERS.items())
    OptimizerConfig = Annotated[Union[_TAGGED], Discriminator(class_name)]  # noqa: UP007


def _read_all(entries: Any) -> Any:
    if not isinstance(entries, list | tuple):
        return entries
    return [_read(entry, f"trainer.init.schedulers[{i}]") for i, entry in enumerate(entries)]


def _read(entry: Any, where: str) -> HyperSchedule:
    if isinstance(entry, HyperSchedule):
        return entry
    name = class_name(entry)
    arguments = entry[name] if name is not None else None
    if name is None or not isinstance(arguments, Mapping):
        raise ConfigError(
            "an entry of schedulers must be a scheduler with its arguments",
            code="not-a-scheduler",
            where=where,
            value=repr(entry),
            rule=f"{{Class: {{arguments}}}} with one of {', '.join(SCHEDULES)}",
        )
    return build_schedule(name, arguments, f"{where}.{name}")


def _write_all(schedules: tuple[HyperSchedule, ...]) -> list[dict[str, Any]]:
    return [_write(schedule) for schedule in schedules]


def _write(schedule: HyperSchedule) -> dict[str, Any]:
    arguments = {name: _plain(getattr(schedule, name)) for name in type(schedule).model_fields}
    given = {name: value for name, value in arguments.items() if value is not None}
    return {type(schedule).__name__: given}


def _plain(value: Any) -> Any:
    if isinstance(value, HyperSchedule):
        return _write(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


Schedulers = Annotated[
    tuple[HyperSchedule, ...], BeforeValidator(_read_all), PlainSerializer(_write_all), one_or_many
]
"""A list, or its single entry. Validated to schedules that can be evaluated."""
