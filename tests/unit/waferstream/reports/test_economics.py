"""Time to train, cost and energy follow from a rate and from prices that the user gives."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.reports.economics import MOST_PRICE, MOST_TOKENS, PriceSpec, training_bill
from wsc.core.config import validate
from wsc.core.errors import ConfigError


def test_a_bill_by_hand():
    """A million tokens at a thousand a second on 18 systems: 1,000 s, 5 system-hours."""
    bill = training_bill(1e6, 1e3, 18, PriceSpec(system_hour=4.0, system_kw=2.0, kwh=0.1))
    assert bill.duration_s == 1000
    assert bill.system_hours == 5
    assert bill.energy_kwh == 10
    assert bill.cost == pytest.approx(5 * 4.0 + 10 * 0.1)


@given(st.floats(1, 1e15), st.floats(1e-3, 1e9), st.integers(1, 4096))
def test_twice_the_systems_at_twice_the_rate_cost_the_same_in_half_the_time(tokens, rate, systems):
    """Perfect scaling buys time for nothing."""
    one = training_bill(tokens, rate, systems, PriceSpec())
    two = training_bill(tokens, 2 * rate, 2 * systems, PriceSpec())
    assert two.duration_s == pytest.approx(one.duration_s / 2)
    assert two.cost == pytest.approx(one.cost)


def test_default_prices_say_that_they_are_illustrative():
    """No default may pass for a fact."""
    for field in PriceSpec.model_fields.values():
        assert field.json_schema_extra == {"status": "assumed"}
        assert "illustrative" in (field.description or "")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tokens", (0, 1.0, 1)),
        ("tokens_per_s", (1, 0.0, 1)),
        ("systems", (1, 1.0, 0)),
        ("tokens", (float("nan"), 1.0, 1)),
        ("tokens", (1.1 * MOST_TOKENS, 1.0, 1)),
        ("tokens_per_s", (1, float("inf"), 1)),
    ],
)
def test_what_is_not_positive_or_too_large_is_refused_by_name(name, arguments):
    """A rate of 0, from a point that does not fit, gives an error and no division by zero."""
    with pytest.raises(ConfigError) as refused:
        training_bill(*arguments, PriceSpec())
    assert refused.value.where == name


def test_a_bill_is_finite_whatever_the_prices():
    """The largest budget, prices and power that are taken, on the slowest of large clusters."""
    prices = PriceSpec(system_hour=MOST_PRICE, system_kw=MOST_PRICE, kwh=MOST_PRICE)
    assert math.isfinite(training_bill(MOST_TOKENS, 1e-30, 2048, prices).cost)


@pytest.mark.parametrize("price", PriceSpec.model_fields)
@pytest.mark.parametrize("value", [1e308, -1.0])
def test_a_price_that_makes_no_bill_is_refused_by_name(price, value):
    """1e308 for an hour would give an infinite bill."""
    with pytest.raises(ConfigError, match=f"value of '{price}'"):
        validate(PriceSpec, {price: value}, "prices")
