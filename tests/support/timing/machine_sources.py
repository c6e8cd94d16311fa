"""Every number of a machine by its dotted key, with its status and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from waferstream.core.config import Config
from waferstream.machine.hardware import MachineSpec, fabric, hosts, inputs, wafer
from waferstream.machine.hardware.sourced import Preset, Sourced

OWN_CODE = ("topology", "kernel_costs")
"""Keys that name code of the user's, and are no numbers."""


def numbers(machine: MachineSpec) -> dict[str, Sourced]:
    """Return the numbers of a machine as its system's presets and the other defaults state them.

    A value without status and source, such as a name, has an empty status and source.
    """
    system = {"CS-2": ("CS2", "WSE2", "HostsOfCS2"), "CS-3": ("CS3", "WSE3", "HostsOfCS3")}[
        machine.system.name
    ]
    presets: Mapping[str, Preset[Any]] = {
        "system.": wafer.PRESETS[system[0]],
        "system.fabric.": fabric.PRESETS[system[1]],
        "system.hosts.": hosts.PRESETS[system[2]],
        **{f"input.{kind}.": preset for kind, preset in inputs.PRESETS.items()},
    }
    return dict(_numbers(machine, presets, ""))


def _numbers(
    section: Config, presets: Mapping[str, Preset[Any]], prefix: str
) -> Iterator[tuple[str, Sourced]]:
    stated = presets[prefix].values if prefix in presets else {}
    for key, info in type(section).model_fields.items():
        value = getattr(section, key)
        if key in OWN_CODE:
            continue
        if isinstance(value, Config):
            yield from _numbers(value, presets, f"{prefix}{key}.")
        elif isinstance(stated.get(key), Sourced):
            yield f"{prefix}{key}", stated[key]
        else:
            extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
            status: Any = extra.get("status", "")
            yield f"{prefix}{key}", Sourced(value, status, info.description or "")
