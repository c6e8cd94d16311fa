"""Time, energy and cost to train on a budget of tokens.

Prices differ by vendor, year and contract, so there is no cost without a price. Power is what was
measured on a system under load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, NonNegativeFloat, PositiveFloat

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import Sourced

SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR
SECONDS_PER_YEAR = 365 * SECONDS_PER_DAY

MOST_TOKENS = 1e18
"""Largest token budget, against typing errors: the largest runs so far took some 1e13 tokens."""
MOST_PRICE = 1e12
"""Largest price and power: enough for any currency, and bills stay finite."""


POWER_KW: Mapping[str, Sourced] = {
    "CS-2": Sourced(
        22.8,
        "published",
        "K0077: average power of a system that runs a stencil (arXiv 2204.03775, section V.C); "
        "16.1 kW idle, 22.9 kW peak",
    ),
    "CS-3": Sourced(
        23.0, "assumed", "that of a CS-2, rounded: the vendor states the same power for both"
    ),
}
"""Power of one system under load, by its name."""


class PriceSpec(Config):
    """Prices of an hour of one system and of energy, in any currency, and power of one system."""

    system_hour: PositiveFloat | None = Field(default=None, le=MOST_PRICE)
    system_kw: NonNegativeFloat | None = Field(default=None, le=MOST_PRICE)
    """None for the power of POWER_KW."""
    kwh: PositiveFloat | None = Field(default=None, le=MOST_PRICE)


@dataclass(frozen=True)
class TrainingBill:
    """Time, energy and cost to train on ``tokens``; a system is a CS system or a GPU."""

    tokens: float
    duration_s: float
    system_hours: float
    energy_kwh: float | None
    """None for a system of unknown power."""
    cost: float | None
    """In the currency of the prices; None without a price."""


@dataclass(frozen=True)
class StepEnergy:
    """Energy of training on all systems of a cluster, at their power under load."""

    systems: int
    system_kw: float
    step_kwh: float
    per_billion_tokens_kwh: float | None
    """None for a model that does not read tokens."""

    @classmethod
    def of(cls, kw: float, systems: int, step_s: float, tokens_per_s: float | None) -> StepEnergy:
        """Return the energy of a step.

        Args:
            kw: Power of one system.
            systems: Number of systems.
            step_s: Duration of a step.
            tokens_per_s: Throughput of all systems together, None without tokens.
        """
        per_second = systems * kw / SECONDS_PER_HOUR
        tokens = None if tokens_per_s is None else per_second * 1e9 / tokens_per_s
        return cls(systems, kw, per_second * step_s, tokens)


def check_tokens(tokens: float, where: str) -> None:
    """Check a token budget.

    Raises:
        ConfigError: The budget is not positive or above MOST_TOKENS; names ``where``.
    """
    if not 0 < tokens <= MOST_TOKENS:
        raise ConfigError(
            "the token budget is out of range",
            code="token-budget-out-of-range",
            where=where,
            value=tokens,
            rule=f"more than 0, at most {MOST_TOKENS:g}",
            remedy="give a number of tokens, as in 300B or 300e9",
        )


def power_kw(system: str, prices: PriceSpec) -> float | None:
    """Return the power of one system: as stated, else as published, None if neither is known."""
    if prices.system_kw is not None:
        return prices.system_kw
    known = POWER_KW.get(system)
    return None if known is None else float(known.value)


def training_bill(
    tokens: float, tokens_per_s: float, systems: int, prices: PriceSpec, kw: float | None = None
) -> TrainingBill:
    """Return the bill of a training run.

    Args:
        tokens: Tokens to train on.
        tokens_per_s: Throughput of all systems together.
        systems: Number of systems.
        prices: Prices of one system and of energy.
        kw: Power of one system.

    Raises:
        ConfigError: A number is not positive and finite (a curve has throughput 0 where the model
            does not fit), or there are more than MOST_TOKENS.
    """
    check_tokens(tokens, "tokens")
    for name, value in (("tokens_per_s", tokens_per_s), ("systems", systems)):
        if not 0 < value < float("inf"):
            raise ConfigError(
                f"{name} must be positive and finite",
                code="bill-input-not-positive",
                where=name,
                value=value,
                rule="more than 0",
            )
    duration_s = tokens / tokens_per_s
    hours = systems * duration_s / SECONDS_PER_HOUR
    energy_kwh = None if kw is None else hours * kw
    parts = [] if prices.system_hour is None else [hours * prices.system_hour]
    if prices.kwh is not None and energy_kwh is not None:
        parts.append(energy_kwh * prices.kwh)
    return TrainingBill(tokens, duration_s, hours, energy_kwh, sum(parts) if parts else None)
