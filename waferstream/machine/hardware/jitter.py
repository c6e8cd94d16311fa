"""Roles that are slower than others, and times that vary (``waferstream.machine.jitter``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import sourced

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
