"""The whole machine of cluster.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Self

from pydantic import Field, field_validator, model_validator

from timing.hardware.inputs import InputSpec
from timing.hardware.jitter import JitterSpec
from timing.hardware.start_up import StartUpSpec
from timing.hardware.streams import MemoryXSpec, SwarmXSpec
from timing.hardware.wafer import Cs3Spec, WaferSpec
from wsc.core.config import Config
from wsc.core.errors import ConfigError

MOST, LEAST = 10**30, 1e-30
"""Of any number but zero: what is beyond is a slip, and would soon be beyond what a float holds."""


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

    @model_validator(mode="after")
    def _numbers_can_be_computed_with(self) -> Self:
        for key, value in _numbers(self):
            if value and not LEAST <= value <= MOST:
                raise ConfigError(
                    f"value of {key!r} is too far from 1",
                    where=key,
                    value=f"{Decimal(value):.3g}",
                    rule=f"0, or from {LEAST:g} to {MOST:g}",
                )
        return self


def _numbers(section: Config, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a section by its dotted key, but for seeds, which nothing computes with."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, Config):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and key != "seed":
            yield f"{prefix}{key}", value
