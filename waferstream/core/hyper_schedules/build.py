"""Building of schedules from plain data: the name of a scheduler and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.hyper_schedules.base import SCHEDULES, HyperSchedule, Key, scheduler_name

ALIASES = {"ChainedScheduler": "ChainedLR"}
"""Other names of schedules: torch's."""

WEIGHT_DECAY_ARGUMENTS = {
    "val": "learning_rate",
    "vals": "learning_rates",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
    "base_val": "base_lr",
    "max_val": "max_lr",
}
"""Arguments of weight-decay schedulers, and the arguments of schedules that they stand for."""


def resolve(class_name: str, where: str) -> tuple[Key, str]:
    """Return the key that the scheduler of that name sets, and the name of its schedule.

    Raises:
        ConfigError: There is no such scheduler.
    """
    name = ALIASES.get(class_name, class_name)
    if name in SCHEDULES:
        return "lr", name
    for schedule in SCHEDULES:
        if scheduler_name(schedule, "weight_decay") == name:
            return "weight_decay", schedule
    raise ConfigError(
        f"unknown schedule {class_name!r}",
        code="unknown-schedule",
        where=where,
        rule=f"known schedules: {', '.join(SCHEDULES)}; for weight decay with WD in place of LR",
        remedy=did_you_mean(class_name, SCHEDULES),
    )


def argument_names(kind: type[HyperSchedule], key: Key) -> dict[str, str]:
    """Return the argument of a scheduler for every field of its schedule, in order."""
    if key == "lr":
        return {name: name for name in kind.model_fields}
    own = {theirs: ours for ours, theirs in WEIGHT_DECAY_ARGUMENTS.items()}
    return {name: own.get(name, name) for name in kind.model_fields}


def build_schedule(class_name: str, args: Mapping[str, Any], where: str) -> HyperSchedule:
    """Build a schedule from plain data, as written in params.yaml.

    Schedules among the arguments are schedules or ``{class name: args}`` mappings.

    Args:
        class_name: The name of a scheduler of learning rates or of weight decay.
        args: Its arguments, under the names that they have in that family.
        where: The place in the configuration, for errors.

    Raises:
        ConfigError: An unknown class or a wrong argument.
    """
    key, schedule = resolve(class_name, where)
    if key == "weight_decay":
        args = {WEIGHT_DECAY_ARGUMENTS.get(name, name): value for name, value in args.items()}
    parts: dict[str, Any] = {}
    if "schedulers" in SCHEDULES[schedule].model_fields:
        given = args.get("schedulers")
        if isinstance(given, list | tuple):
            places = [f"{where}.schedulers[{index}]" for index in range(len(given))]
            parts["schedulers"] = [
                _build_part(part, key, place) for part, place in zip(given, places, strict=True)
            ]
    elif "scheduler" in SCHEDULES[schedule].model_fields and "scheduler" in args:
        parts["scheduler"] = _build_part(args["scheduler"], key, f"{where}.scheduler")
    return validate(SCHEDULES[schedule], {**args, **parts}, where)


def _build_part(part: object, key: Key, where: str) -> HyperSchedule:
    if isinstance(part, HyperSchedule):
        return part
    if not isinstance(part, Mapping) or len(part) != 1:
        raise ConfigError(
            "an entry of schedulers must be a schedule",
            code="not-a-schedule",
            where=where,
            value=part,
            rule="a mapping {class name: arguments}",
        )
    ((class_name, args),) = part.items()
    where = f"{where}.{class_name}"
    if not isinstance(args, Mapping | None):
        raise ConfigError(
            "a schedule must be a class name with its arguments",
            code="not-a-schedule",
            where=where,
            value=args,
            rule="a mapping {class name: arguments}",
        )
    if resolve(str(class_name), where)[0] != key:
        raise ConfigError(
            "a schedule and its parts must set the same hyper-parameter",
            code="part-of-other-family",
            where=where,
            rule=f"every part sets {key}",
        )
    return build_schedule(str(class_name), args or {}, where)
