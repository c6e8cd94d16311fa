"""``trainer.init.schedulers``: ``[{Class: {arguments}}]`` (cluster_interface.md, section 3.5).

The classes are those of ``wsc.core.hyper_schedules``, which also checks their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from waferstream.config.section import class_name, one_or_many
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import HyperSchedule
from wsc.core.schedule_registry import SCHEDULES, build_schedule


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
            "no scheduler with its arguments stands here",
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
