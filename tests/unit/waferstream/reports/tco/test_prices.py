"""Prices of machines, energy and people, from a file and as typed."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.reports.tco.prices import Prices, with_price

MACHINES = ("CS-3", "H100")


def priced(typed: str, prices: Prices | None = None) -> Prices:
    return with_price(prices or Prices(), typed, "--price", MACHINES)


def test_a_typed_price_wins_over_that_of_the_file() -> None:
    """All else of the file stays."""
    file = {"machines": {"CS-3": {"hour_usd": 10, "set_up_h": 7}}, "people": {"researchers": 2}}
    prices = priced("cs-3=20USD", validate(Prices, file, "prices.yaml"))
    hour = prices.needs("CS-3").hour_usd
    assert hour is not None
    assert hour.value == 20
    assert prices.needs("CS-3").set_up_h is not None
    assert prices.people.researchers.value == 2
    assert prices.needs("H100").hour_usd is None


def test_energy_and_people_have_prices() -> None:
    prices = priced("person=90USD", priced("kwh=0.25USD"))
    assert (prices.site.kwh_usd.value, prices.people.hour_usd.value) == (0.25, 90)


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("CS-3=60", "price-without-currency"),
        ("CS-9=60USD", "price-of-nothing"),
        ("60USD", "price-of-nothing"),
    ],
)
def test_a_wrong_price_is_refused(typed: str, code: str) -> None:
    with raises(ConfigError, code):
        priced(typed)


@pytest.mark.parametrize(
    "file", [{"site": {"kwh": 0.2}}, {"machines": {"CS-3": {"hour": 60}}}], ids=["site", "machine"]
)
def test_a_file_states_the_currency_of_a_price_in_its_key(file: dict[str, object]) -> None:
    """So none can be without."""
    with raises(ConfigError, "unknown-key"):
        validate(Prices, file, "prices.yaml")
