"""The cost of an update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoryx.optim.cost import NO_UPDATE, update_cost, waits_for_all
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.decays import ConstantLR
from waferstream.core.optimizer import LossScaleRule, OptimizerSpec, ParamGroup, WeightAverage
from waferstream.core.program.program import TensorSpec

WEIGHT = TensorSpec("weight", (8, 4), "float32")


def spec(rule: str, **hyper: object) -> OptimizerSpec:
    return OptimizerSpec(rule, (ParamGroup(("weight",), hyper),))


def test_update_cost_follows_rule_and_state() -> None:
    """AdamW keeps two moments, Lion one; SGD without momentum keeps nothing."""
    parameters = {"weight": WEIGHT}
    assert update_cost(spec("AdamW", amsgrad=False), parameters) == (8, 15)
    assert update_cost(spec("AdamW", amsgrad=True), parameters).state_bytes == 12
    assert update_cost(spec("Lion"), parameters) == (4, 9)
    assert update_cost(spec("SGD", momentum=0.0), parameters).state_bytes == 0


def test_update_cost_of_a_step_without_optimizer_is_zero() -> None:
    """An evaluation keeps no state, does no operations, and waits for no norm."""
    assert update_cost(None, {"weight": WEIGHT}) == NO_UPDATE
    assert not waits_for_all(None)


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({}, False),
        ({"loss_scale": 1024.0}, False),
        ({"max_gradient_norm": 1.0}, True),
        ({"loss_scale": LossScaleRule(2000, 1.0, 2.0**15)}, True),
    ],
)
def test_waits_for_all_with_a_norm_or_a_dynamic_scale(options: Any, waits: bool) -> None:
    """Clipping by value and a fixed scale need no gradient but the parameter's own."""
    update = replace(spec("SGD"), max_gradient_value=0.5, **options)
    assert waits_for_all(update) == waits


def test_update_cost_of_an_unknown_rule_is_refused() -> None:
    """The error lists the known rules."""
    with raises(ConfigError, "unknown-optimizer"):
        update_cost(spec("AdmaW"), {"weight": WEIGHT})


def test_update_cost_of_muon_counts_its_matrix_products() -> None:
    """An 8 x 4 matrix: 12 operations per element, and 5 iterations on 4 x 8."""
    products = 2 * 4 * 4 * 8 + 2 * 4**3 + 3 * 4 * 4 + 2 * 4 * 4 * 8 + 2 * 4 * 8
    expected = -(-(12 * 32 + 5 * products) // 32)
    assert update_cost(spec("Muon", ns_steps=5), {"weight": WEIGHT}) == (4, expected)


def test_averages_are_read_and_written_with_their_sources() -> None:
    """Four bytes and three operations per averaged element; here those of half the elements."""
    parameters = {name: replace(WEIGHT, name=name) for name in ("weight", "other", "average")}
    decay = ConstantLR(learning_rate=0.9)
    update = replace(
        OptimizerSpec("AdamW", (ParamGroup(("weight", "other"), {"amsgrad": False}),)),
        averages=(WeightAverage("average", "weight", decay),),
    )
    assert update_cost(update, parameters) == (8 + 2, 15 + 2)
