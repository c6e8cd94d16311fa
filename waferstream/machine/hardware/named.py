"""Clusters that people name, and the numbers of cluster.yaml that they stand for.

What was published of each, with what the clock makes of it, is in
``waferstream.machine.published``. A number that nobody has published is that of any machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.user_code import IMPORT_PATH, import_object
from waferstream.machine.hardware.sourced import Sourced

ANDROMEDA = "announcement of Andromeda, November 2022"
CG1 = "announcement of Condor Galaxy 1, July 2023"
CG3 = "announcement of Condor Galaxy 3, March 2024"
DALLAS = "vendor: 192 CS-3 with 324 TB in Dallas"
WSE3 = "announcement of the CS-3, March 2024"

_DDR5_BYTES = 36_000_000_000_000


@dataclass(frozen=True)
class NamedMachine:
    """A cluster by its name in cluster.yaml, ``machine: {name: condor-galaxy-1}``."""

    name: str
    title: str
    system: str
    """The kind of its systems."""
    stated: Mapping[str, Sourced]
    """Numbers of the machine by their keys, such as ``memoryx.dram_bytes``."""

    @property
    def systems(self) -> int:
        """How many systems there are."""
        return int(self.stated["systems"].value)

    @property
    def keys(self) -> dict[str, Any]:
        """The section ``machine`` that the name stands for."""
        section: dict[str, Any] = {"system": self.system}
        for key, number in self.stated.items():
            *folders, last = key.split(".")
            inner = section
            for folder in folders:
                inner = inner.setdefault(folder, {})
            inner[last] = number.value
        return section


def _condor_galaxy_of_cs2(number: int, announced: str) -> NamedMachine:
    return NamedMachine(
        f"condor-galaxy-{number}",
        f"Condor Galaxy {number}",
        "CS-2",
        {
            "systems": Sourced(64, "published", announced),
            "memoryx.dram_bytes": Sourced(82_000_000_000_000, "published", CG1),
        },
    )


_BUILT = (
    NamedMachine(
        "andromeda",
        "Andromeda",
        "CS-2",
        {
            "systems": Sourced(16, "published", ANDROMEDA),
            "memoryx.dram_bytes": Sourced(
                20_500_000_000_000, "assumed", "a quarter of Condor Galaxy 1, whose design it is"
            ),
        },
    ),
    _condor_galaxy_of_cs2(1, CG1),
    _condor_galaxy_of_cs2(2, "announced with Condor Galaxy 1 as its like"),
    NamedMachine(
        "condor-galaxy-3",
        "Condor Galaxy 3",
        "CS-3",
        {
            "systems": Sourced(64, "published", CG3),
            "memoryx.dram_bytes": Sourced(
                108_000_000_000_000, "derived", f"a third of the like; {DALLAS}"
            ),
        },
    ),
)

MEMORY_OPTIONS: Mapping[str, Mapping[str, Sourced]] = {
    "1.5TB": {"memoryx.dram_bytes": Sourced(1_500_000_000_000, "published", WSE3)},
    "12TB": {"memoryx.dram_bytes": Sourced(12_000_000_000_000, "published", WSE3)},
    "36TB": {
        "memoryx.dram_bytes": Sourced(_DDR5_BYTES, "published", "DDR5; vendor, CS-3"),
    },
    "1200TB": {
        "memoryx.dram_bytes": Sourced(_DDR5_BYTES, "assumed", "that of the DDR5 option"),
        "memoryx.flash_bytes": Sourced(1_200_000_000_000_000, "published", WSE3),
    },
}
"""Memory of a CS-3 cluster, as it is sold."""


def _clusters_of_cs3(systems: int, source: str) -> Iterator[NamedMachine]:
    """Yield a cluster with memory in the proportion that was built, and one for each option."""
    number = Sourced(systems, "published", source)
    built = Sourced(324_000_000_000_000 * systems // 192, "derived", f"in proportion; {DALLAS}")
    name, title = f"cs3-{systems}", f"{systems} CS-3"
    yield NamedMachine(name, title, "CS-3", {"systems": number, "memoryx.dram_bytes": built})
    for option, memory in MEMORY_OPTIONS.items():
        stated = {"systems": number, **memory}
        yield NamedMachine(f"{name}-{option}", f"{title} with {option}", "CS-3", stated)


PRESETS: Mapping[str, NamedMachine] = {
    machine.name: machine
    for machine in (*_BUILT, *_clusters_of_cs3(64, CG3), *_clusters_of_cs3(192, DALLAS))
}


def named_machine(name: object) -> NamedMachine:
    """Return the machine of a name, or of an import path (``my_module:MY_MACHINE``).

    Raises:
        ConfigError: There is none.
    """
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    if isinstance(name, str) and re.match(IMPORT_PATH, name):
        return _own_machine(name)
    raise ConfigError(
        "a named machine must be one that is known",
        code="unknown-machine",
        where="machine.name",
        value=name,
        rule=f"{' or '.join(PRESETS)}; or the import path of one, my_module:MY_MACHINE",
        remedy=did_you_mean(str(name), list(PRESETS)),
    )


def _own_machine(path: str) -> NamedMachine:
    """Return the machine of an import path, under that name."""
    found = import_object(path, "machine.name")
    if not isinstance(found, NamedMachine):
        raise ConfigError(
            f"{path!r} must be a NamedMachine",
            code="extension-of-wrong-kind",
            where="machine.name",
            value=type(found).__name__,
            rule="MY_MACHINE = NamedMachine(...), of waferstream.machine.hardware.named",
        )
    return replace(found, name=path)


def with_named(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a section ``machine`` with those that its name stands for.

    A key that the section states itself wins.

    Raises:
        ConfigError: There is no machine of that name.
    """
    found = named_machine(section["name"]).keys
    for key, value in section.items():
        beneath = {"name": found[key]} if key == "system" else found.get(key)
        is_merged = isinstance(value, Mapping) and isinstance(beneath, dict)
        found[key] = beneath | value if is_merged else value
    return found
