"""The whole machine of cluster.yaml, and a table of all its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, field_validator

from wsc.core.config import Config
from wsc.timing.hardware.inputs import InputSpec
from wsc.timing.hardware.jitter import JitterSpec
from wsc.timing.hardware.start_up import StartUpSpec
from wsc.timing.hardware.streams import MemoryXSpec, SwarmXSpec
from wsc.timing.hardware.wafer import Cs3Spec, WaferSpec


class MachineSpec(Config):
    """The machine of cluster.yaml.

    ``system`` is ``CS-2``, ``CS-3``, or a mapping that changes single numbers of the system that
    its ``name`` names. A CS-2 unless told otherwise, since its constants rest on the most rows.
    """

    system: WaferSpec = Field(default_factory=WaferSpec)
    memoryx: MemoryXSpec = Field(default_factory=MemoryXSpec)
    swarmx: SwarmXSpec = Field(default_factory=SwarmXSpec)
    input: InputSpec = Field(default_factory=InputSpec)
    start_up: StartUpSpec = Field(default_factory=StartUpSpec)
    jitter: JitterSpec = Field(default_factory=JitterSpec)

    @field_validator("system", mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping):
            is_cs3 = value.get("name") == "CS-3"
            return (Cs3Spec if is_cs3 else WaferSpec).model_validate(value)
        return value


def describe(machine: MachineSpec) -> str:
    """A table of all numbers: name, value, status, source. A changed default has status "set"."""
    rows = list(_rows(machine))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {status:<{widths[2]}}  {source}"
        for name, value, status, source in rows
    )


def _rows(section: Config, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    for key, info in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, Config):
            yield from _rows(value, f"{prefix}{key}.")
        elif isinstance(info.json_schema_extra, dict):
            status = str(info.json_schema_extra["status"])
            known = (status, info.description or "")
            changed = ("set", f"instead of {info.default}")
            yield (f"{prefix}{key}", str(value), *(known if value == info.default else changed))
