"""``trainer.init.optimizer`` and ``trainer.init.schedulers``: classes with their arguments.

``{Class: {arguments}}`` and ``[{Class: {arguments}}]`` (``trainer`` of Model Zoo 2.10). Classes,
arguments and defaults are those of the rules in ``memoryx.optim`` and of the schedules in
``waferstream.core.hyper_schedules``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Union, get_type_hints

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    Tag,
    ValidatorFunctionWrapHandler,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from memoryx.optim.rule import PLUGINS, RULES, Rule, rule_named
from waferstream.config.sections.section import Named, Section, class_name, one_or_many
from waferstream.core.config import before, validate
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import SCHEDULES, HyperSchedule, Key, scheduler_name
from waferstream.core.hyper_schedules.build import argument_names, build_schedule, resolve

_LR = Field(validation_alias=AliasChoices("lr", "learning_rate"))


def _one_as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping | Section) else value


class TaggedWeights(Section):
    """Parameters, by globs of their names here or at the vendor, and a tag of their group."""

    params: Annotated[tuple[str, ...], one_or_many] = Field(min_length=1)
    """Globs of names of parameters, here or in the vendor's Model Zoo."""
    tag: str = Field(min_length=1)
    """Name by which ``param_group_tags`` of schedulers select these parameters."""

    def selects(self, *names: str) -> bool:
        """Return whether a glob matches one of the names of a parameter."""
        return any(fnmatchcase(name, glob) for name in names for glob in self.params)

    def selects_any(self, parameters: Iterable[Sequence[str]]) -> bool:
        """Return whether a glob matches a name of some parameter; each may have several names."""
        return any(self.selects(*names) for names in parameters)


_Written = tuple[TaggedWeights, ...] | TaggedWeights | None


class Optimizer(Named):
    """An optimizer with its hyper-parameters; every rule has a subclass of its name."""

    params: Annotated[tuple[TaggedWeights, ...] | None, before(_one_as_list, _Written)] = None
    """Tags of parameters, for the ``param_group_tags`` of schedulers; one may have several."""

    lr: Annotated[NonNegativeFloat | None, _LR] = None
    """Learning rate; null where a scheduler, or the rule itself, gives it."""
    adjust_learning_rate: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Factors on the learning rate, by group of parameters: embedding, decoder_attention, ..."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the class by name."""
        own = super().arguments()
        del own["adjust_learning_rate"], own["params"]
        return own

    @property
    def tags(self) -> frozenset[str]:
        """The tags that groups of parameters may have."""
        return frozenset({DECAYED, NOT_DECAYED, *(each.tag for each in self.params or ())})

    @property
    def needs_lr(self) -> bool:
        """Whether a rate has to be given, here or by a scheduler."""
        return rule_named(self.class_name).needs_lr(self.arguments())


def _section_of(rule: Rule, base: type[Optimizer] = Optimizer) -> type[Optimizer]:
    hints = get_type_hints(rule.Arguments, include_extras=True)
    fields: dict[str, Any] = {
        name: (Annotated[hints[name], _LR] if name == "lr" else hints[name], field.default)
        for name, field in rule.Arguments.model_fields.items()
    }
    return create_model(rule.name, __base__=base, __doc__=type(rule).__doc__, **fields)


class PluginOptimizer(Optimizer):
    """An optimizer of an installed package; its section has the arguments of its rule."""

    @classmethod
    def class_names(cls) -> tuple[str, ...]:
        """Return the names that packages offer."""
        return tuple(PLUGINS)

    @model_validator(mode="wrap")
    @classmethod
    def _of_rule(cls, data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if cls is not PluginOptimizer or isinstance(data, PluginOptimizer):
            return handler(data)
        ((name, arguments),) = data.items()
        section = _section_of(rule_named(name), PluginOptimizer)
        given = arguments if isinstance(arguments, Mapping) else data
        return validate(section, given, f"trainer.init.optimizer.{name}")


OPTIMIZERS = {name: _section_of(rule) for name, rule in RULES.items()}
"""The sections of params.yaml by class name."""


def optimizer_name(name: str) -> str:
    """Return the class of a name in any case."""
    return next((kind for kind in OPTIMIZERS if kind.lower() == name.lower()), name)


def _with_class(value: Any) -> Any:
    """Read ``{adamw: ...}`` as ``{AdamW: ...}``, and leave out what Adam does anyway."""
    if (name := class_name(value)) is None or isinstance(value, Named):
        return value
    arguments = value[name]
    if optimizer_name(name) == "Adam" and isinstance(arguments, Mapping):
        arguments = {
            key: given
            for key, given in arguments.items()
            if not (key == "correct_bias" and given is True)
        }
    return {optimizer_name(name): arguments}


def _tag_of(value: object) -> str | None:
    name = class_name(value)
    is_plugin = name is not None and name not in OPTIMIZERS and name in PLUGINS
    return PluginOptimizer.__name__ if is_plugin else name


if TYPE_CHECKING:
    OptimizerConfig = Optimizer
else:
    _TAGGED = tuple(Annotated[kind, Tag(name)] for name, kind in OPTIMIZERS.items())
    _PLUGIN = Annotated[SkipJsonSchema[PluginOptimizer], Tag(PluginOptimizer.__name__)]
    _ANY = Annotated[Union[*_TAGGED, _PLUGIN], Discriminator(_tag_of)]
    OptimizerConfig = Annotated[_ANY, BeforeValidator(_with_class), PlainSerializer(Section.dump)]


DECAYED, NOT_DECAYED = "decay", "no_decay"
"""Tags of the parameter groups of a run: matrices, and tensors of at most one dimension."""


@dataclass(frozen=True)
class SchedulerConfig:
    """A scheduler: the hyper-parameter that it sets, its values, and the groups by their tags."""

    key: Key
    schedule: HyperSchedule
    param_group_tags: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The class name in ``cstorch.optim``."""
        return scheduler_name(type(self.schedule).__name__, self.key)

    def without(self, gone: Collection[str]) -> SchedulerConfig | None:
        """Return the scheduler of its groups without these tags; None if it has no others."""
        if self.param_group_tags is None:
            return self
        left = tuple(tag for tag in self.param_group_tags if tag not in gone)
        return replace(self, param_group_tags=left) if left else None

    def overlaps(self, other: SchedulerConfig) -> bool:
        """Return whether both set the same hyper-parameter of some group."""
        if self.param_group_tags is None or other.param_group_tags is None:
            return self.key == other.key
        return self.key == other.key and not {*self.param_group_tags}.isdisjoint(
            other.param_group_tags
        )


def _read_all(entries: Any) -> Any:
    if not isinstance(entries, list | tuple):
        return entries
    return [_read(entry, f"trainer.init.schedulers[{i}]") for i, entry in enumerate(entries)]


def _read(entry: Any, where: str) -> SchedulerConfig:
    if isinstance(entry, SchedulerConfig):
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
    key, _ = resolve(name, where)
    own = {name: value for name, value in arguments.items() if name != "param_group_tags"}
    tags = _read_tags(arguments.get("param_group_tags"), f"{where}.{name}.param_group_tags")
    if key == "weight_decay" and tags is None:
        tags = (DECAYED,)
    return SchedulerConfig(key, build_schedule(name, own, f"{where}.{name}"), tags)


def _read_tags(tags: Any, where: str) -> tuple[str, ...] | None:
    if tags is None:
        return None
    given = tuple(tags) if isinstance(tags, list | tuple) else (tags,)
    if not given or not all(isinstance(tag, str) for tag in given):
        raise unknown_tags(tags, where)
    return given


def unknown_tags(tags: object, where: str, known: Collection[str] = ()) -> ConfigError:
    """Return the error for tags that no group of parameters has."""
    others = sorted({*known} - {DECAYED, NOT_DECAYED})
    return ConfigError(
        "param_group_tags must name groups of the optimizer",
        code="unknown-tag",
        where=where,
        value=tags,
        rule=f"{DECAYED} (matrices), {NOT_DECAYED} (biases and norms), or a tag of its params"
        + (f": {', '.join(others)}" if others else ""),
    )


def _write_all(schedulers: tuple[SchedulerConfig, ...]) -> list[dict[str, Any]]:
    return [_write_entry(scheduler) for scheduler in schedulers]


def _write_entry(scheduler: SchedulerConfig) -> dict[str, Any]:
    written = _write(scheduler.schedule, scheduler.key)
    if scheduler.param_group_tags is not None:
        written[scheduler.name]["param_group_tags"] = list(scheduler.param_group_tags)
    return written


def _write(schedule: HyperSchedule, key: Key) -> dict[str, Any]:
    given = {
        argument: _plain(getattr(schedule, name), key)
        for name, argument in argument_names(type(schedule), key).items()
    }
    arguments = {name: value for name, value in given.items() if value is not None}
    return {scheduler_name(type(schedule).__name__, key): arguments}


def _plain(value: Any, key: Key) -> Any:
    if isinstance(value, HyperSchedule):
        return _write(value, key)
    return [_plain(item, key) for item in value] if isinstance(value, tuple) else value


Schedulers = Annotated[
    tuple[SchedulerConfig, ...],
    BeforeValidator(_read_all),
    PlainSerializer(_write_all),
    one_or_many,
]
"""A list, or its single entry. Validated to schedules that can be evaluated."""
