"""The whole machine of cluster.yaml: a CS system, MemoryX, SwarmX, inputs, jitter, power.

See ``waferstream.machine.jitter`` for the model of roles that are slower than others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from waferstream.core.config import Config, before
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.machine.hardware.activations import ActivationSpec
from waferstream.machine.hardware.inputs import InputSpec
from waferstream.machine.hardware.named import with_named
from waferstream.machine.hardware.power import PowerSpec
from waferstream.machine.hardware.sourced import merged, sourced
from waferstream.machine.hardware.streams import MemoryXSpec, SwarmXSpec
from waferstream.machine.hardware.wafer import CS2, SYSTEMS, WaferSpec

MOST, LEAST = 10**30, 1e-30
"""Limits of every number but zero: a number beyond is a typing error, and floats overflow soon."""

_ROLE = re.compile(r"(csx|br|wgt)-(0|[1-9]\d*)")

SLOWEST = 1_000_000
"""Largest factor by which a role may be slower."""


class JitterSpec(Config):
    """Slow roles and random variation of times; by default none.

    ``stragglers`` maps a CS system, a SwarmX switch or a weight server (``csx-3``, ``br-0``,
    ``wgt-1``) to the factor by which it is slower; roles that a cluster lacks are ignored, so that
    one machine serves a sweep. The sigmas are standard deviations of the logarithm of a
    time, whose median stays what it is without jitter.
    """

    seed: NonNegativeInt = sourced(0, "assumed", "any; one seed gives one run, to the picosecond")
    kernel_sigma: NonNegativeFloat = sourced(
        0.0, "assumed", "no spread of kernel times published", le=1
    )
    transfer_sigma: NonNegativeFloat = sourced(
        0.0, "assumed", "no spread of transfers published", le=1
    )
    stragglers: Mapping[str, PositiveFloat] = sourced({}, "assumed", "no slow role published")

    @field_validator("stragglers")
    @classmethod
    def _name_slow_roles(cls, stragglers: Mapping[str, float]) -> Mapping[str, float]:
        for role, factor in stragglers.items():
            if not _ROLE.fullmatch(role):
                raise ConfigError(
                    "a straggler must be a role of the cluster",
                    code="unknown-role",
                    where="jitter.stragglers",
                    value=role,
                    rule="csx-N, br-N or wgt-N",
                )
            if not 1 <= factor <= SLOWEST:
                raise ConfigError(
                    f"the factor of {role} must be from 1 to {SLOWEST}; got {factor}",
                    code="straggler-factor-out-of-range",
                    where="jitter.stragglers",
                    value=factor,
                    rule=f"1 to {SLOWEST}",
                )
        return stragglers

    @property
    def varies(self) -> bool:
        """Whether times vary from step to step; stragglers are always slow by the same factor."""
        return bool(self.kernel_sigma or self.transfer_sigma)

    def slowest(self, kind: str, count: int) -> float:
        """Return the factor of the slowest of the roles ``kind-0`` to ``kind-(count - 1)``."""
        factors = (f for role, f in self.stragglers.items() if self._is_in(role, kind, count))
        return max(factors, default=1.0)

    def of(self, role: str) -> float:
        """Return the factor by which one role is slower."""
        return self.stragglers.get(role, 1.0)

    @staticmethod
    def _is_in(role: str, kind: str, count: int) -> bool:
        name, index = role.split("-")
        return name == kind and int(index) < count


EVEN = JitterSpec()


def _from_name(value: object) -> object:
    changes = {"name": value} if isinstance(value, str) else value
    if not isinstance(changes, Mapping):
        return value
    name = changes.get("name", CS2.name)
    if not isinstance(name, str) or name not in SYSTEMS:
        raise ConfigError(
            "a CS system must be one whose numbers are known",
            code="unknown-system",
            where="machine.system",
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

    name: str | None = None
    """A cluster that people name, whose published numbers count unless they are changed here."""

    systems: PositiveInt | None = None
    """CS systems that there are; a run with more is refused. null for as many as a run asks for."""

    system: Annotated[WaferSpec, before(_from_name, str | WaferSpec)] = CS2
    memoryx: MemoryXSpec = Field(default_factory=MemoryXSpec)
    swarmx: SwarmXSpec = Field(default_factory=SwarmXSpec)
    activations: ActivationSpec = Field(default_factory=ActivationSpec)
    input: InputSpec = Field(default_factory=InputSpec)
    jitter: JitterSpec = Field(default_factory=JitterSpec)
    power: PowerSpec = Field(default_factory=PowerSpec)

    @model_validator(mode="before")
    @classmethod
    def _as_named(cls, section: object) -> object:
        if isinstance(section, Mapping) and section.get("name") is not None:
            return with_named(section)
        return section

    @property
    def published(self) -> MachineSpec:
        """The machine of this name, if any, and kind of system, with no number changed."""
        return _published(self.name, self.system.name)

    @property
    def has_published_times(self) -> bool:
        """Whether all numbers but those of power are the published ones."""
        published = self.published
        return self.model_copy(update={"power": published.power}) == published

    def check_systems(self, num_csx: int) -> None:
        """Check that there are so many systems.

        Raises:
            ConfigError: There are fewer.
        """
        if self.systems is not None and num_csx > self.systems:
            raise ConfigError(
                f"{self.name or 'the machine'} has {self.systems} systems",
                code="too-few-systems",
                where="num_csx",
                value=num_csx,
                rule=f"at most machine.systems, {self.systems}",
                remedy="lower num_csx, or raise machine.systems in cluster.yaml",
            )

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


@cache
def _published(name: str | None, system: str) -> MachineSpec:
    return MachineSpec.model_validate({"name": name, "system": system})
