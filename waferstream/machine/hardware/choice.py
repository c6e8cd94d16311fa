"""Which numbers count where cluster.yaml and a command line name different systems."""

from __future__ import annotations

from collections.abc import Iterator

from waferstream.core.config import Config
from waferstream.machine.hardware.wafer import SYSTEMS, WaferSpec


def chosen_system(own: WaferSpec, name: str) -> WaferSpec:
    """Return the system of a name: ``own`` if it has that name, else the published one.

    Args:
        own: The system of cluster.yaml, with the numbers that the file changes.
        name: The system that a command line or a program names.
    """
    return own if own.name == name else SYSTEMS[name]


def overruled(own: WaferSpec, name: str, where: str) -> str:
    """Return a sentence on numbers of cluster.yaml that do not count, or nothing if all do.

    Args:
        own: The system of cluster.yaml.
        name: The system that is chosen.
        where: What chooses it.
    """
    keys = ", ".join(changed_keys(own, SYSTEMS[own.name]))
    if own.name == name or not keys:
        return ""
    return (
        f"{where} wins: a {name} as published, without what cluster.yaml changes of a {own.name} "
        f"({keys})."
    )


def changed_keys(spec: Config, published: Config, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a section whose values are not the published ones."""
    for key in type(spec).model_fields:
        value, other = getattr(spec, key), getattr(published, key)
        if isinstance(value, Config) and isinstance(other, Config):
            yield from changed_keys(value, other, f"{prefix}{key}.")
        elif value != other:
            yield f"{prefix}{key}"
