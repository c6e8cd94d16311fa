"""Time, cost and energy to train on a budget of tokens.

Prices differ by vendor, year and contract, so they are inputs. Those that stand here are
illustrative: they make an example run and belong in no comparison.
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
"""A budget above it is a slip of the pen: the largest runs so far took some 1e13 tokens."""
MOST_PRICE = 1e12
"""The same for a price and for power: room for any currency, and bills stay finite."""


class PriceSpec(Config):
    """What an hour of one system costs and how much power the system draws."""

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
    """What it takes to train on ``tokens``; a system is a CS system or a GPU."""

    tokens: float
    duration_s: float
    system_hours: float
    energy_kwh: float
    cost: float
    """In the currency of the prices."""


def check_tokens(tokens: float, where: str) -> None:
    """ConfigError that names ``where`` unless there are tokens, and at most MOST_TOKENS."""
    if not 0 < tokens <= MOST_TOKENS:
        raise ConfigError(
            "the tokens to train on are none or too many",
            where=where,
            value=tokens,
            rule=f"more than 0, at most {MOST_TOKENS:g}",
            remedy="give a number of tokens, as in 300e9",
        )


def training_bill(
    tokens: float, tokens_per_s: float, systems: int, prices: PriceSpec
) -> TrainingBill:
    """The bill of a training run on ``systems`` that together train on ``tokens_per_s``.

    Raises ConfigError unless rate and systems are positive and finite, and tokens what
    ``check_tokens`` lets pass; a curve has the rate 0 where the model does not fit.
    """
    check_tokens(tokens, "tokens")
    for name, value in (("tokens_per_s", tokens_per_s), ("systems", systems)):
        if not 0 < value < float("inf"):
            raise ConfigError(
                f"{name} of a training bill is not positive and finite",
                where=name,
                value=value,
                rule="more than 0",
            )
    duration_s = tokens / tokens_per_s
    hours = systems * duration_s / SECONDS_PER_HOUR
    energy_kwh = hours * prices.system_kw
    cost = hours * prices.system_hour + energy_kwh * prices.kwh
    return TrainingBill(tokens, duration_s, hours, energy_kwh, cost)
