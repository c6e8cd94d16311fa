"""Time, cost and energy to train on a budget of tokens.

Prices differ by vendor, year and contract, so they are inputs. The default prices are illustrative:
they serve examples, not comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import NonNegativeFloat

from timing.hardware.sourced import sourced
from wsc.core.config import Config
from wsc.core.errors import ConfigError

SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR

MOST_TOKENS = 1e18
"""Largest token budget, against typing errors: the largest runs so far took some 1e13 tokens."""
MOST_PRICE = 1e12
"""Largest price and power: enough for any currency, and bills stay finite."""


class PriceSpec(Config):
    """Price of an hour and power of one system, and price of energy."""

    system_hour: NonNegativeFloat = sourced(
        10.0,
        "assumed",
        "illustrative: a round number in no particular currency, not an offer",
        le=MOST_PRICE,
    )
    system_kw: NonNegativeFloat = sourced(
        0.0, "assumed", "illustrative: power not counted unless it is given", le=MOST_PRICE
    )
    kwh: NonNegativeFloat = sourced(
        0.0, "assumed", "illustrative: energy taken as part of the price of an hour", le=MOST_PRICE
    )


@dataclass(frozen=True)
class TrainingBill:
    """Time, energy and cost to train on ``tokens``; a system is a CS system or a GPU."""

    tokens: float
    duration_s: float
    system_hours: float
    energy_kwh: float
    cost: float
    """In the currency of the prices."""


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
            remedy="give a number of tokens, as in 300e9",
        )


def training_bill(
    tokens: float, tokens_per_s: float, systems: int, prices: PriceSpec
) -> TrainingBill:
    """Return the bill of a training run.

    Args:
        tokens: Tokens to train on.
        tokens_per_s: Throughput of all systems together.
        systems: Number of systems.
        prices: Prices and power of one system.

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
    energy_kwh = hours * prices.system_kw
    cost = hours * prices.system_hour + energy_kwh * prices.kwh
    return TrainingBill(tokens, duration_s, hours, energy_kwh, cost)
