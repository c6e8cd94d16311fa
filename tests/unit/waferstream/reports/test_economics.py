"""Prices of the command line, and the bill of a budget of tokens."""

from __future__ import annotations

import math

import pytest

from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.machine.energy import Footprint
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.power import MOST_PRICE
from waferstream.reports.economics import MOST_TOKENS, PriceSpec, training_bill

MILLION = Footprint(kwh=10.0, kg_co2e=4.0, usd=21.0)


def test_training_bill_of_a_known_run() -> None:
    """Two million tokens at 1,000 tokens/s on 18 systems: 2,000 s, 10 system hours."""
    bill = training_bill(2e6, 1e3, 18, MILLION)
    assert bill.duration_s == 2000
    assert bill.system_hours == 10
    assert bill.footprint == Footprint(kwh=20.0, kg_co2e=8.0, usd=42.0)


def test_prices_of_the_command_line_take_the_place_of_those_of_the_machine() -> None:
    """A system that waits keeps its share of the power under load."""
    machine = MachineSpec()
    assert PriceSpec().stated_for(machine) == machine
    power = (
        PriceSpec(system_hour_price=10.0, system_kw=11.4, kwh_price=0.2).stated_for(machine).power
    )
    assert (power.system_hour_usd, power.kwh_usd) == (10.0, 0.2)
    assert power.of_system("CS-2").load_kw == 11.4
    assert power.of_system("CS-2").idle_kw == pytest.approx(16.1 / 2)


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
        training_bill(*arguments, MILLION)
    assert caught.value.where == name


def test_training_bill_is_finite_for_the_largest_prices() -> None:
    """The largest budget at the largest price of a million tokens."""
    bill = training_bill(MOST_TOKENS, 1e-30, 2048, Footprint(1e30, 1e30, MOST_PRICE))
    assert all(map(math.isfinite, vars(bill.footprint).values()))


@pytest.mark.parametrize("price", PriceSpec.model_fields)
@pytest.mark.parametrize("value", [1e308, -1.0])
def test_price_spec_refuses_prices_out_of_range(price: str, value: float) -> None:
    """1e308 per hour would give an infinite bill."""
    with pytest.raises(ConfigError, match=price):
        validate(PriceSpec, {price: value}, "prices")
