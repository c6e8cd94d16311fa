"""Time, energy and cost of a training run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.reports.economics import (
    MOST_PRICE,
    MOST_TOKENS,
    PriceSpec,
    StepEnergy,
    power_kw,
    training_bill,
)


def test_training_bill_of_a_known_run() -> None:
    """A million tokens at 1,000 tokens/s on 18 systems: 1,000 s, 5 system hours."""
    bill = training_bill(1e6, 1e3, 18, PriceSpec(system_hour=4.0, kwh=0.1), kw=2.0)
    assert bill.duration_s == 1000
    assert bill.system_hours == 5
    assert bill.energy_kwh == 10
    assert bill.cost == pytest.approx(5 * 4.0 + 10 * 0.1)


@given(st.floats(1, 1e15), st.floats(1e-3, 1e9), st.integers(1, 4096))
def test_training_bill_of_perfect_scaling_keeps_the_cost(
    tokens: float, rate: float, systems: int
) -> None:
    """Twice the systems at twice the rate need half the time."""
    prices = PriceSpec(system_hour=3.0)
    one = training_bill(tokens, rate, systems, prices)
    two = training_bill(tokens, 2 * rate, 2 * systems, prices)
    assert two.duration_s == pytest.approx(one.duration_s / 2)
    assert two.cost == pytest.approx(one.cost)


def test_training_bill_has_no_cost_without_a_price() -> None:
    """A price of energy alone is one, where the power is known."""
    assert training_bill(1e6, 1e3, 1, PriceSpec(), kw=2.0).cost is None
    assert training_bill(1e6, 1e3, 1, PriceSpec(kwh=1.0)).cost is None
    assert training_bill(3.6e6, 1e3, 1, PriceSpec(kwh=1.0), kw=2.0).cost == 2.0


def test_power_is_that_of_the_system_unless_stated() -> None:
    """22.8 kW were measured on a CS-2 (arXiv 2204.03775); a machine of one's own has none."""
    assert power_kw("CS-2", PriceSpec()) == 22.8
    assert power_kw("CS-2", PriceSpec(system_kw=1.0)) == 1.0
    assert power_kw("mine", PriceSpec()) is None


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
def test_training_bill_refuses_numbers_out_of_range(
    name: str, arguments: tuple[float, float, int]
) -> None:
    """A point that does not fit has throughput 0: an error, not a division by zero."""
    code = "token-budget-out-of-range" if name == "tokens" else "bill-input-not-positive"
    with raises(ConfigError, code) as caught:
        training_bill(*arguments, PriceSpec())
    assert caught.value.where == name


def test_training_bill_is_finite_for_the_largest_prices() -> None:
    """The largest budget, prices and power, on a large and slow cluster."""
    prices = PriceSpec(system_hour=MOST_PRICE, kwh=MOST_PRICE)
    cost = training_bill(MOST_TOKENS, 1e-30, 2048, prices, kw=MOST_PRICE).cost
    assert cost is not None
    assert math.isfinite(cost)


@pytest.mark.parametrize("price", PriceSpec.model_fields)
@pytest.mark.parametrize("value", [1e308, -1.0])
def test_price_spec_refuses_prices_out_of_range(price: str, value: float) -> None:
    """1e308 per hour would give an infinite bill."""
    with pytest.raises(ConfigError, match=price):
        validate(PriceSpec, {price: value}, "prices")


def test_energy_of_a_step_and_of_a_billion_tokens() -> None:
    """4 x 18 kW for 5 s are 0.1 kWh; at 1,000 tokens a second a billion takes 277.8 hours."""
    energy = StepEnergy.of(18.0, 4, step_s=5.0, tokens_per_s=1e3)
    assert energy.step_kwh == pytest.approx(0.1)
    assert energy.per_billion_tokens_kwh == pytest.approx(72 * 1e6 / 3600)
    assert StepEnergy.of(18.0, 4, 5.0, None).per_billion_tokens_kwh is None
