"""Which numbers count where cluster.yaml, a named machine and a command line differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from waferstream.core.config import Config
from waferstream.machine.hardware.machine import MachineSpec
from waferstream.machine.hardware.named import named_machine
from waferstream.machine.hardware.wafer import SYSTEMS


@dataclass(frozen=True)
class Choice:
    """A machine, and a note on numbers that were given and do not count, empty if all do."""

    machine: MachineSpec
    note: str


def choose(own: MachineSpec, name: str | None, where: str) -> Choice:
    """Return the machine that a command line or a program names.

    That of cluster.yaml with the numbers that the file changes, where it has the name or a system
    of that name; else one with the published system, or the published machine.

    Args:
        own: The machine of cluster.yaml.
        name: A kind of system, or a named machine; None for that of cluster.yaml.
        where: What names it.

    Raises:
        ConfigError: There is neither.
    """
    if name in (None, own.name, own.system.name):
        return Choice(own, contradiction(own))
    assert name is not None
    keys = list(changed_keys(own.system, SYSTEMS[own.system.name], "system."))
    if name in SYSTEMS:
        machine = own.model_copy(update={"system": SYSTEMS[name]})
    else:
        machine = MachineSpec(name=name)
        published = own.published.model_copy(update={"system": own.system})
        keys += changed_keys(own, published)
    left_out = (
        f"{where} wins: {name} as published, without what cluster.yaml changes ({', '.join(keys)})."
        if keys
        else ""
    )
    return Choice(machine, " ".join(filter(None, (left_out, contradiction(machine)))))


def contradiction(machine: MachineSpec) -> str:
    """Return a sentence on published numbers of a named machine that do not count, or nothing."""
    if machine.name is None:
        return ""
    published, named = MachineSpec(name=machine.name), named_machine(machine.name)
    keys = [key for key in named.stated if _at(machine, key) != _at(published, key)]
    if machine.system.name != published.system.name:
        keys.append("system.name")
    else:
        keys += changed_keys(machine.system, published.system, "system.")
    each = "; ".join(f"{key} is {_at(machine, key)}, not {_at(published, key)}" for key in keys)
    return f"What is given beside a name wins over {named.title}: {each}." if each else ""


def changed_keys(spec: Config, published: Config, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a section whose values are not the published ones."""
    for key in type(spec).model_fields:
        value, other = getattr(spec, key), getattr(published, key)
        if isinstance(value, Config) and isinstance(other, Config):
            yield from changed_keys(value, other, f"{prefix}{key}.")
        elif value != other:
            yield f"{prefix}{key}"


def _at(machine: MachineSpec, key: str) -> object:
    """Return the value of a dotted key."""
    return reduce(getattr, key.split("."), machine)
