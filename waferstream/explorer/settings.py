"""From the knobs to a configuration: which keys change, checked by the schema of each."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.core.config import dump_yaml, validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.explorer.knobs import (
    DENSITY,
    KIND,
    KINDS,
    POSITIONS,
    SEQUENCE,
    SYSTEM,
    Knob,
    at_rest,
)
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.choice import choose

Settings = Mapping[str, float]
"""Values by the names of knobs; knobs that are left out are at rest."""


def checked(settings: Mapping[str, Any], knobs: Sequence[Knob]) -> dict[str, float]:
    """Return the value of every knob.

    Raises:
        ConfigError: There is no such knob, or a value is no number or out of range.
    """
    by_name = {knob.name: knob for knob in knobs}
    for name, value in settings.items():
        if name not in by_name:
            raise ConfigError(
                f"there is no slider {name!r}",
                code="unknown-key",
                where=name,
                value=value,
                rule=f"one of {', '.join(by_name)}",
                remedy=did_you_mean(name, by_name),
            )
        _check(by_name[name], value)
    return {**at_rest(knobs), **settings}


def _check(knob: Knob, value: object) -> None:
    kind = "a whole number" if knob.is_whole else "a number"
    is_number = isinstance(value, int if knob.is_whole else int | float)
    if not is_number or isinstance(value, bool):
        raise ConfigError(
            f"{knob.label} must be {kind}",
            code="wrong-type",
            where=" and ".join(knob.keys),
            value=repr(value),
            rule=kind,
        )
    assert isinstance(value, int | float)
    if not knob.least <= value <= knob.most:  # also of a value that is not a number
        raise ConfigError(
            f"{knob.label} is out of range",
            code="out-of-range",
            where=" and ".join(knob.keys),
            value=value,
            rule=f"from {knob.least:g} to {knob.most:g}",
        )


@dataclass(frozen=True)
class Configured:
    """The files with some keys changed.

    Attributes:
        changes: New values by dotted keys, from ``trainer`` or ``machine`` on.
    """

    params: Params
    cluster: ClusterSpec
    changes: Mapping[str, Any]

    @property
    def yaml(self) -> str:
        """The changed keys, below ``trainer`` those of params.yaml, the others of cluster.yaml."""
        nested: dict[str, Any] = {}
        for key, value in self.changes.items():
            _put(nested, key, value)
        return dump_yaml(nested) if nested else "# nothing is changed\n"


class Files:
    """A params file and a machine, and what they are with knobs moved."""

    def __init__(self, params: Params, cluster: ClusterSpec) -> None:
        self.params, self.cluster = params, cluster

    def with_settings(self, settings: Settings, knobs: Sequence[Knob]) -> Configured:
        """Return the configuration of some settings, each knob of which has a value.

        Raises:
            ConfigError: A section does not allow a value.
        """
        changes = self._changes(settings, knobs)
        of_machine = {key: value for key, value in changes.items() if key.startswith("machine.")}
        spec = choose(self.cluster.machine, of_machine.pop(SYSTEM, None), SYSTEM).machine
        data = {"machine": spec.model_dump(mode="json")}
        for key, value in of_machine.items():
            _put(data, key, value)
        spec = validate(MachineSpec, data["machine"], "machine")
        return Configured(
            changed(self.params, {k: v for k, v in changes.items() if k.startswith("trainer.")}),
            self.cluster.model_copy(update={"machine": spec}),
            changes,
        )

    def _changes(self, settings: Settings, knobs: Sequence[Knob]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for knob in knobs:
            value = settings[knob.name]
            if value != knob.value:
                changes |= dict.fromkeys(knob.keys, _written(knob, value))
        positions = getattr(self.params.trainer.init.model, "max_position_embeddings", None)
        if isinstance(positions, int) and settings.get(SEQUENCE, 0) > positions:
            changes[POSITIONS] = settings[SEQUENCE]
        return changes


def changed(params: Params, changes: Mapping[str, Any]) -> Params:
    """Return a params file with other values at dotted keys.

    Raises:
        ConfigError: The schema does not allow one.
    """
    data = copy.deepcopy(params.dump())
    for key, value in changes.items():
        _put(data, key, value)
    return validate(Params, data, "settings")


def _written(knob: Knob, value: float) -> Any:
    """Return the value of a knob as its keys have it."""
    if knob.name == KIND:
        return KINDS[int(value)]
    if knob.name == DENSITY:
        return {"algorithm": "static", "sparsity": round(1 - value, 6)}
    return value


def _put(data: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the value of a dotted key; missing mappings are created."""
    *folders, last = dotted.split(".")
    for folder in folders:
        if data.get(folder) is None:
            data[folder] = {}
        data = data[folder]
    data[last] = value
