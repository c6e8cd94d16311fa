"""What tokens cost: dollars per million tokens, by model."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.serving import Usage

Dollars = Annotated[Decimal, Field(ge=0, le=10**6, decimal_places=3)]
"""Per million tokens; the thousandth part of it is a nanodollar per token."""


class Price(Config):
    """The prices of a model, in dollars per million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """Of the tokens of a prompt that were cached; by default that of the others."""

    @model_validator(mode="after")
    def _cached_is_no_dearer(self) -> Self:
        if self.cached is not None and self.cached > self.input:
            raise ValueError("cached must be at most input: balances are held for that")
        return self

    def nanodollars(self, usage: Usage) -> int:
        """Return what an answer costs."""
        cached = self.input if self.cached is None else self.cached
        cost = (
            (usage.prompt_tokens - usage.cached_tokens) * self.input
            + usage.cached_tokens * cached
            + usage.completion_tokens * self.output
        )
        return int(cost * 1000)


class _Prices(Config):
    prices: dict[str, Price]


FREE = Price(input=Decimal(0), output=Decimal(0))
"""The price of a model where none is stated."""


def read_price(path: Path, model: str) -> Price:
    """Return the price of a model that a file of prices by model states.

    Raises:
        ConfigError: The file is wrong, or does not have the model.
    """
    prices = validate(_Prices, {"prices": load_yaml(path)}, str(path)).prices
    if model not in prices:
        raise ConfigError(
            "the model that is served must have a price",
            code="price-missing",
            where=str(path),
            value=model,
            rule=did_you_mean(model, prices) or f"the file has {', '.join(prices) or 'none'}",
            remedy=f"add a line `{model}: {{input: 0.1, output: 0.1}}`",
        )
    return prices[model]
