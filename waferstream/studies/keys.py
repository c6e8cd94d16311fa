"""The keys of a study: where a dotted name lives, and files of a point with its values in them.

Names are those of the files: ``machine.swarmx.fan_out`` of cluster.yaml, ``trainer.init.model...``
of params.yaml, whose first two parts may be left out (``model.hidden_size``). Some have a short
name of their own, and two are of no file: ``num_csx``, and ``scaling``, strong or weak.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from waferstream.config.overrides import KeyPath
from waferstream.config.params import FitConfig, InitConfig
from waferstream.core.errors import ConfigError, did_you_mean

Home = Literal["params", "machine", "num_csx", "scaling"]

_SHORT: Mapping[str, tuple[Home, KeyPath]] = {
    "num_csx": ("num_csx", ()),
    "scaling": ("scaling", ()),
    "system": ("machine", ("system",)),
    "batch_size": ("params", ("fit", "train_dataloader", "batch_size")),
    "micro_batch_size": (
        "params",
        ("init", "callbacks", "ScopedTrainFlags", "csx.performance.micro_batch_size"),
    ),
    "max_sequence_length": ("params", ("fit", "train_dataloader", "max_sequence_length")),
}
_SECTIONS: Mapping[str, str] = {
    **dict.fromkeys(InitConfig.model_fields, "init"),
    **dict.fromkeys(FitConfig.model_fields, "fit"),
}


@dataclass(frozen=True)
class Key:
    """A key that varies: its name as typed, and its path from the top of its section."""

    name: str
    home: Home
    path: KeyPath
    """From ``trainer`` or ``machine`` down; empty for a key of no file."""

    @property
    def decides_capture(self) -> bool:
        """Whether each of its values is another step to capture."""
        return self.home == "params" and self.name not in ("batch_size", "micro_batch_size")


def parse_key(name: str) -> Key:
    """Return the key of a dotted name; hyphens stand for underscores.

    Raises:
        ConfigError: Its first part is of no section; the error names the nearest one.
    """
    plain = name.strip().lstrip("-").replace("-", "_")
    if plain in _SHORT:
        return Key(plain, *_SHORT[plain])
    first, *rest = plain.split(".")
    if first == "machine" and rest:
        return Key(plain, "machine", tuple(rest))
    if first == "trainer" and len(rest) > 1 and rest[0] in ("init", "fit"):
        return Key(plain, "params", tuple(rest))
    if first in _SECTIONS and rest:
        return Key(plain, "params", (_SECTIONS[first], first, *rest))
    known = [*_SHORT, "machine", "trainer.init", "trainer.fit", *_SECTIONS]
    raise ConfigError(
        f"unknown key {name!r}",
        code="unknown-key",
        where="the keys of a study",
        value=name,
        rule=f"{', '.join(_SHORT)}, or a dotted key of cluster.yaml (machine.swarmx.fan_out) or "
        "params.yaml (model.hidden_size)",
        remedy=did_you_mean(first, known),
    )


def with_machine(cluster: Mapping[str, Any], changes: Mapping[Key, Any]) -> dict[str, Any]:
    """Return the data of a cluster.yaml with the values of machine keys in it.

    A value for a whole section comes before those of keys in the section.
    """
    data = copy.deepcopy(dict(cluster))
    for key, value in sorted(changes.items(), key=lambda each: len(each[0].path)):
        _put(data, ("machine", *key.path), value)
    return data


def _put(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        inner = data.get(part)
        if not isinstance(inner, dict):  # a name stands for a section: ``system: CS-3``
            inner = data[part] = {} if inner is None else {"name": inner}
        data = inner
    data[path[-1]] = value
