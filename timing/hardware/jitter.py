"""Roles that are slower than others, and times that vary; see timing.jitter for the model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from timing.hardware.sourced import sourced
from wsc.core.config import Config

_ROOM = re.compile(r"(csx|br|wgt)-(0|[1-9]\d*)")

SLOWEST = 1_000_000
"""A role slower by a larger factor stands still."""


class JitterSpec(Config):
    """How uneven the machine is; by default not at all.

    ``stragglers`` maps a CS system, a SwarmX switch or a weight server (``csx-3``, ``br-0``,
    ``wgt-1``) to the factor by which it is slower; a role that a cluster lacks is left aside, so
    that one machine serves a sweep. The sigmas are standard deviations of the logarithm of a
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
            if not _ROOM.fullmatch(role):
                raise ValueError(f"{role!r} is no room; roles are csx-N, br-N and wgt-N")
            if not 1 <= factor <= SLOWEST:
                raise ValueError(f"{role} is slower by a factor of 1 to {SLOWEST}, not {factor}")
        return stragglers

    @property
    def varies(self) -> bool:
        """Whether the same work takes another time each time; stragglers alone are slow always."""
        return bool(self.kernel_sigma or self.transfer_sigma)

    def slowest(self, kind: str, count: int) -> float:
        """The factor of the slowest of the roles ``kind-0`` to ``kind-(count - 1)``; 1 if even."""
        factors = (f for role, f in self.stragglers.items() if self._is_in(role, kind, count))
        return max(factors, default=1.0)

    def of(self, role: str) -> float:
        """The factor by which one role is slower."""
        return self.stragglers.get(role, 1.0)

    @staticmethod
    def _is_in(role: str, kind: str, count: int) -> bool:
        name, index = role.split("-")
        return name == kind and int(index) < count


EVEN = JitterSpec()
