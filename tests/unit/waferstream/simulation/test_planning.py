"""Wafers and GPUs for a model and a budget of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import modelzoo
from appliance.spec import ClusterSpec
from tests.support.errors import raises
from waferstream.config.phases import load_params
from waferstream.core.config import validate
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.machine.hardware import MachineSpec
from waferstream.reports.tco.prices import Prices
from waferstream.reports.tco.text import verdict
from waferstream.scaling.plan_request import Asked, PlanRequest
from waferstream.simulation.planning import Plan, plan

PARAMS = Path(modelzoo.__file__).parent / "params"


def planned(
    *gpus: Asked, name: str = "gpt2_small", cluster: ClusterSpec | None = None, **given: object
) -> Plan:
    """Return the plan of ten billion tokens on a CS-3 and on GPUs."""
    request = PlanRequest((Asked("CS-3"),), gpus, 1e10, prices=validate(Prices, given, "prices"))
    return plan(load_params(PARAMS / f"{name}.yaml"), request, cluster or ClusterSpec())


@pytest.fixture(scope="module")
def small() -> Plan:
    return planned(Asked("H100"), Asked("B200", 8))


def test_gpus_are_as_many_as_are_as_fast(small: Plan) -> None:
    """One node less is slower; a count that is asked for stays."""
    wafer, matched, asked = small.costs.comparison.machines
    assert (wafer.name, asked.name) == ("1 CS-3", "8 B200")
    values = small.costs.values
    assert values[f"{matched.name}.tokens_per_s"] >= values["1 CS-3.tokens_per_s"]
    assert small.simulation.gpus is not None
    fewer = [
        point.tokens_per_s
        for curve in small.simulation.gpus.curves
        for point in curve.fitting
        if curve.gpu == "H100" and point.gpus < matched.count
    ]
    assert max(fewer, default=0) < values["1 CS-3.tokens_per_s"]


@pytest.mark.nightly
def test_the_fastest_way_to_train_on_gpus_counts() -> None:
    """Of three, only one trains 1.3 billion parameters on 8 GPUs as fast as a wafer."""
    _, matched = planned(Asked("H100"), name="gpt3_1.3b").costs.comparison.machines
    assert matched.name == "8 H100"


def test_costs_follow_from_the_prediction(small: Plan) -> None:
    """Days from the rate, energy from the power, and every assumption has a source."""
    cost, values = small.costs.costs()["1 CS-3"], small.costs.values
    rate = values["1 CS-3.tokens_per_s"] * (1 - values["1 CS-3.lost_share"])
    assert cost.training_h == pytest.approx(1e10 / rate / 3600)
    point = small.simulation.points[0]
    assert point.energy is not None
    assert cost.kwh == pytest.approx(point.energy.power_kw * cost.training_h)
    assert all(one.source for one in small.costs.assumptions.values())


def test_a_sentence_tells_the_break_even(small: Plan) -> None:
    """At its tokens, and at its price, both cost the same."""
    even, _ = small.costs.break_evens
    assert even.system_hour_usd is not None or even.tokens_per_run is not None
    for key, value in (
        ("project.tokens_per_run", even.tokens_per_run),
        ("1 CS-3.hour_usd", even.system_hour_usd),
    ):
        if value is not None:
            costs = small.costs.costs({key: value})
            assert costs[even.system].usd == pytest.approx(costs[even.gpus].usd)
    assert any(line.startswith("Break-even of 1 CS-3 and ") for line in verdict(small.costs))


def test_prices_come_from_the_file_or_else_from_the_machine() -> None:
    """Those of cluster.yaml count where it changes them."""
    power = {"system_hour_usd": 30, "kwh_usd": 0.3, "pue": 1.1}
    cluster = ClusterSpec(machine=MachineSpec.model_validate({"system": "CS-3", "power": power}))
    found = planned(
        Asked("H100", 8),
        cluster=cluster,
        site={"pue": 1.2},
        machines={"H100": {"hour_usd": 2}},
        currency={"code": "EUR"},
    )
    values = found.costs.values
    assert (values["1 CS-3.hour_usd"], values["8 H100.hour_usd"]) == (30, 2)
    assert (values["site.kwh_usd"], values["site.pue"]) == (0.3, 1.2)
    assert "EUR" in verdict(found.costs)[0]


def test_gpus_that_cannot_train_the_model_are_refused() -> None:
    """More GPUs than have a sample of the batch."""
    with raises(ApplianceResourceExhausted, "gpus-without-room"):
        planned(Asked("H100", 99_999))


@pytest.mark.nightly
def test_a_model_that_reads_no_tokens_is_refused() -> None:
    """It would be compared by days of tokens."""
    with raises(ConfigError, "model-without-tokens"):
        planned(Asked("H100"), name="dit_2b")
