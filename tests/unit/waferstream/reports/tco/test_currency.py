"""Currencies and typed prices."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.reports.tco.currency import RATES, Currency, parse_price
from waferstream.reports.tco.estimates import PositiveEstimate

USD = Currency()


def test_a_price_is_read_with_its_currency() -> None:
    """In dollars, with what was typed and the source of the rate."""
    price = parse_price("60 EUR", "--price CS-3", USD)
    assert price.value == pytest.approx(60 / 0.924)
    assert "60 EUR" in price.source
    assert RATES["EUR"].source in price.source
    assert parse_price("2.5usd", "--price H100", USD).value == 2.5


def test_a_stated_rate_wins() -> None:
    own = Currency(code="SEK", usd=PositiveEstimate(value=0.1, source="bank"))
    assert parse_price("50SEK", "--price", own).value == pytest.approx(5)
    assert own.of_usd(5) == pytest.approx(50)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("60", "price-without-currency"),
        ("cheap", "price-invalid"),
        ("-1USD", "price-invalid"),
        ("60 SEK", "unknown-currency"),
    ],
)
def test_a_wrong_price_is_refused(text: str, code: str) -> None:
    with raises(ConfigError, code):
        parse_price(text, "--price", USD)
