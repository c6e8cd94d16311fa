"""The interval of one prediction, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Share = Literal["half", "nine_tenths"]

SHARES: Mapping[Share, str] = {"half": "50 %", "nine_tenths": "90 %"}
"""Shares of measured values that intervals hold, as they are printed."""

NEAR_DECADES = 0.5
"""A prediction up to so far from a calibrated row is covered by published runs: a factor of 3."""

_LARGE = 1.5  # a wider interval is told as a factor


@dataclass(frozen=True)
class Interval:
    """Factors between a prediction and what is measured, either way."""

    half: float
    """Factor that half of the measured values keep."""
    nine_tenths: float
    """Factor that nine of ten measured values keep."""
    decades: float
    """Distance to the nearest calibrated row."""
    nearest: str
    """That row; empty if the family has none."""

    @property
    def is_extrapolated(self) -> bool:
        """Whether no calibrated row is near."""
        return self.decades > NEAR_DECADES

    def around(self, value: float, share: Share = "nine_tenths") -> tuple[float, float]:
        """Return the range that holds a share of measured values if ``value`` is predicted."""
        factor = self.half if share == "half" else self.nine_tenths
        return value / factor, value * factor

    @property
    def place(self) -> str:
        """Where the nearest calibrated row lies, in words."""
        return f"{self.nearest or 'none'}, {10**self.decades:.3g} times away"

    def __str__(self) -> str:
        return (
            f"half of measured values within {_spread(self.half)}, nine of ten within "
            f"{_spread(self.nine_tenths)} (nearest calibrated run: {self.place})"
        )


@dataclass(frozen=True)
class Unknown:
    """Why a prediction has no interval, and what it would take."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"unknown, {self.reason}; {self.remedy}"


AnyInterval = Interval | Unknown


def _spread(factor: float) -> str:
    return f"{factor - 1:.1%}" if factor < _LARGE else f"a factor of {factor:.1f}"
