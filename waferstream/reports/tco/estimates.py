"""Assumptions as numbers with a range and a source."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from waferstream.core.config import Config, before
from waferstream.core.errors import ConfigError

LEAST, MOST = 1e-30, 1e30
"""Smallest and largest number: beyond is a typing error, and products of three stay finite."""


class Estimate(Config):
    """A number, the range in which it is thought to be, and where that comes from.

    A file may state the number alone, which then has no range.
    """

    value: Annotated[NonNegativeFloat, Field(le=MOST)]
    low: NonNegativeFloat | None = None
    high: Annotated[NonNegativeFloat, Field(le=MOST)] | None = None
    source: str = "stated in the file"

    @model_validator(mode="after")
    def _is_in_its_range(self) -> Self:
        if not self.least <= self.value <= self.most:
            raise ConfigError(
                "an estimate must be in its range",
                code="estimate-out-of-range",
                where="low, high",
                value=(self.low, self.value, self.high),
                rule="low is at most value, and value at most high",
            )
        return self

    @property
    def least(self) -> float:
        """The low end; the value where no range is stated."""
        return self.value if self.low is None else self.low

    @property
    def most(self) -> float:
        """The high end; the value where no range is stated."""
        return self.value if self.high is None else self.high


class PositiveEstimate(Estimate):
    """An estimate that must not be zero: of a power, a rate, a number of runs."""

    value: Annotated[PositiveFloat, Field(ge=LEAST, le=MOST)]
    low: Annotated[PositiveFloat, Field(ge=LEAST)] | None = None


class ShareEstimate(Estimate):
    """An estimate of a share, below 1."""

    value: Annotated[NonNegativeFloat, Field(lt=1)]
    high: Annotated[NonNegativeFloat, Field(lt=1)] | None = None


def _from_number(written: object) -> object:
    is_number = isinstance(written, int | float) and not isinstance(written, bool)
    return {"value": written} if is_number else written


Amount = Annotated[Estimate, before(_from_number, float | Estimate)]
"""What a file states as a number or as an estimate."""
Positive = Annotated[PositiveEstimate, before(_from_number, float | PositiveEstimate)]
Share = Annotated[ShareEstimate, before(_from_number, float | ShareEstimate)]
