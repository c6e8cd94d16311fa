"""Prices from the command line, and the time, energy and cost of a budget of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, NonNegativeFloat, PositiveFloat

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.energy import SECONDS_PER_HOUR, Footprint
from waferstream.machine.hardware import MachineSpec, override
from waferstream.machine.hardware.power import MOST_PRICE

SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR
SECONDS_PER_YEAR = 365 * SECONDS_PER_DAY

MOST_TOKENS = 1e18
"""Largest token budget, against typing errors: the largest runs so far took some 1e13 tokens."""


class PriceSpec(Config):
    """Power and prices that the command line states instead of cluster.yaml, in dollars."""

    system_hour_price: NonNegativeFloat | None = Field(default=None, le=MOST_PRICE)
    system_kw: PositiveFloat | None = Field(default=None, le=MOST_PRICE)
    """Under load; a system that waits draws the same share of it as the published one."""
    kwh_price: NonNegativeFloat | None = Field(default=None, le=MOST_PRICE)

    def stated_for(self, machine: MachineSpec) -> MachineSpec:
        """Return the machine with these powers and prices."""
        changes = {
            "system_hour_usd": self.system_hour_price,
            "load_kw": self.system_kw,
            "kwh_usd": self.kwh_price,
        }
        stated = {name: value for name, value in changes.items() if value is not None}
        of_old_load = {} if self.system_kw is None else {"idle_kw": None}
        power = override(machine.power, **of_old_load, **stated)
        return machine.model_copy(update={"power": power})


@dataclass(frozen=True)
class TrainingBill:
    """Time, energy and cost to train on ``tokens``."""

    tokens: float
    duration_s: float
    system_hours: float
    footprint: Footprint


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


def training_bill(
    tokens: float, tokens_per_s: float, systems: int, per_million_tokens: Footprint
) -> TrainingBill:
    """Return the bill of a training run.

    Args:
        tokens: Tokens to train on.
        tokens_per_s: Throughput of all systems together.
        systems: Number of systems.
        per_million_tokens: What a million tokens take.

    Raises:
        ConfigError: A number is not positive and finite, or there are more than MOST_TOKENS.
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
    return TrainingBill(tokens, duration_s, hours, per_million_tokens.times(tokens / 1e6))
