"""Currencies, and prices with their currency as they are typed: ``60 EUR``.

Costs are computed in US dollars, in which most sources state prices, and told in the currency that
is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.reports.tco.estimates import Estimate, Positive, PositiveEstimate

_IRS = "yearly average of 2024, US Internal Revenue Service"

RATES: Mapping[str, PositiveEstimate] = {
    "USD": PositiveEstimate(value=1, source="by definition"),
    "EUR": PositiveEstimate(value=1 / 0.924, source=_IRS),
    "GBP": PositiveEstimate(value=1 / 0.783, source=_IRS),
    "CHF": PositiveEstimate(value=1 / 0.881, source=_IRS),
    "CAD": PositiveEstimate(value=1 / 1.370, source=_IRS),
    "CNY": PositiveEstimate(value=1 / 7.189, source=_IRS),
    "JPY": PositiveEstimate(value=1 / 151.353, source=_IRS),
    "INR": PositiveEstimate(value=1 / 83.677, source=_IRS),
}
"""US dollars of one unit, by the code of the currency."""

_PRICE = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<code>[A-Za-z]{3})?", re.ASCII)


class Currency(Config):
    """The currency in which sums are told."""

    code: str = "USD"
    usd: Positive | None = None
    """US dollars of one; known for some currencies."""

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if self.usd is None and self.code not in RATES:
            raise ConfigError(
                "a currency must be known, or state its rate",
                code="unknown-currency",
                where="currency",
                value=self.code,
                rule=" or ".join(RATES),
                remedy=did_you_mean(self.code.upper(), list(RATES))
                or "give `currency: {code: ..., usd: ...}` with the dollars of one",
            )
        return self

    @property
    def rate(self) -> PositiveEstimate:
        """US dollars of one, with where that comes from."""
        return self.usd or RATES[self.code]

    def of_usd(self, usd: float) -> float:
        """Return a sum of US dollars in this currency."""
        return usd / self.rate.value


def parse_price(text: str, where: str, own: Currency) -> Estimate:
    """Return a typed price in US dollars.

    Args:
        text: An amount and the code of its currency, such as ``60 EUR``.
        where: The flag, for errors.
        own: A currency whose rate is stated.

    Raises:
        ConfigError: It is no price, has no currency, or one that is not known.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or found["code"] is None:
        raise ConfigError(
            "a price must be an amount with a currency",
            code="price-without-currency" if found else "price-invalid",
            where=where,
            value=text,
            rule=f"a number and one of {', '.join(RATES)}, as in 60EUR",
            remedy=f"write {text.strip()}USD, if that is meant" if found else None,
        )
    code = found["code"].upper()
    rate = (own if code == own.code else Currency(code=code)).rate
    typed = f"{found['amount']} {code}"
    source = typed if code == "USD" else f"{typed} of {rate.value:.4g} USD each ({rate.source})"
    return Estimate(value=float(found["amount"]) * rate.value, source=f"{where}: {source}")
