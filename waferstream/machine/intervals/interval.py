"""The interval of one prediction, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass

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

    def half_around(self, value: float) -> tuple[float, float]:
        """Return the range that holds half of the measured values when ``value`` is predicted."""
        return value / self.half, value * self.half

    def around(self, value: float) -> tuple[float, float]:
        """Return the range that holds nine of ten of them."""
        return value / self.nine_tenths, value * self.nine_tenths

    def __str__(self) -> str:
        nearest = f"{self.nearest} is {10**self.decades:.1f} times away" if self.nearest else "none"
        return (
            f"half of measured values are within {_spread(self.half)} of the prediction, nine of "
            f"ten within {_spread(self.nine_tenths)} (nearest calibrated row: {nearest})"
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
