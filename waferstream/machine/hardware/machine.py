"""The whole machine of cluster.yaml: a CS system, MemoryX, SwarmX, inputs, start-up and jitter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Self

from pydantic import Field, model_validator

from waferstream.core.config import Config, before
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.machine.hardware.inputs import InputSpec
from waferstream.machine.hardware.jitter import JitterSpec
from waferstream.machine.hardware.sourced import merged
from waferstream.machine.hardware.start_up import StartUpSpec
from waferstream.machine.hardware.streams import MemoryXSpec, SwarmXSpec
from waferstream.machine.hardware.wafer import CS2, SYSTEMS, WaferSpec

MOST, LEAST = 10**30, 1e-30
"""Limits of every number but zero: a number beyond is a typing error, and floats overflow soon."""


def _from_name(value: object) -> object:
    changes = {"name": value} if isinstance(value, str) else value
    if not isinstance(changes, Mapping):
        return value
    name = changes.get("name", CS2.name)
    if not isinstance(name, str) or name not in SYSTEMS:
        raise ConfigError(
            "a CS system must be one whose numbers are known",
            code="unknown-system",
            where="system",
            value=name,
            rule=" or ".join(SYSTEMS),
            remedy=did_you_mean(str(name), list(SYSTEMS)),
        )
    return merged(SYSTEMS[name], changes)


class MachineSpec(Config):
    """The machine of cluster.yaml.

    ``system`` is ``CS-2``, ``CS-3``, or a mapping that changes single numbers of the system that
    its ``name`` names. Without a name that is a CS-2, whose constants rest on the most rows.
    """

    system: Annotated[WaferSpec, before(_from_name, str | WaferSpec)] = CS2
    memoryx: MemoryXSpec = Field(default_factory=MemoryXSpec)
    swarmx: SwarmXSpec = Field(default_factory=SwarmXSpec)
    input: InputSpec = Field(default_factory=InputSpec)
    start_up: StartUpSpec = Field(default_factory=StartUpSpec)
    jitter: JitterSpec = Field(default_factory=JitterSpec)

    @model_validator(mode="after")
    def _numbers_fit_floats(self) -> Self:
        for key, value in _numbers(self):
            if value and not LEAST <= value <= MOST:
                raise ConfigError(
                    f"value of {key!r} is too far from 1",
                    code="number-out-of-range",
                    where=key,
                    value=f"{Decimal(value):.3g}",
                    rule=f"0, or from {LEAST:g} to {MOST:g}",
                )
        return self


def _numbers(section: Config, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of a section by its dotted key, except seeds: nothing is computed."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, Config):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and key != "seed":
            yield f"{prefix}{key}", value
