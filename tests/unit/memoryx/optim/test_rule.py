"""Rules by name, and the state they keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from memoryx.optim.rule import RULES, rule_named, state_bytes
from tests.support.errors import raises
from tests.support.plain_torch.optimizer_rules import init_state
from waferstream.core.errors import ConfigError


def test_rule_named_suggests_the_nearest_name() -> None:
    """An unknown name is an error that names the rule that was meant."""
    with raises(ConfigError, "unknown-optimizer") as caught:
        rule_named("AdamWW")
    assert "'AdamW'" in str(caught.value.remedy)


def test_register_names_a_rule_after_its_class() -> None:
    """Names, costs and default hyper-parameters are complete."""
    assert sorted(RULES) == [
        *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lamb", "Lion"),
        *("Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
    ]
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.flops_per_element > 0
        assert "lr" in dict(rule.Arguments())


@pytest.mark.parametrize(
    ("name", "hyper", "num_bytes"),
    [
        ("SGD", {"momentum": 0.0}, 0),
        ("SGD", {"momentum": 0.9}, 4 * 24),
        ("Adam", {"amsgrad": False}, 8 * 24),
        ("AdamW", {"amsgrad": True}, 12 * 24),
        ("Lion", {}, 4 * 24),
        ("Lamb", {}, 8 * 24),
        ("Adafactor", {"beta1": None}, 4 * (2 * 3 + 2 * 4)),
        ("Adafactor", {"beta1": 0.9}, 4 * (2 * 3 + 2 * 4 + 24)),
        ("Adadelta", {}, 8 * 24),
        ("Adagrad", {"initial_accumulator_value": 0.0}, 4 * 24),
        ("RMSprop", {"momentum": 0.0, "centered": False}, 4 * 24),
        ("RMSprop", {"momentum": 0.9, "centered": True}, 12 * 24),
        ("Adamax", {}, 8 * 24),
        ("NAdam", {}, 8 * 24),
        ("RAdam", {}, 8 * 24),
        ("ASGD", {}, 4 * 24),
        ("Rprop", {"lr": 0.0}, 8 * 24),
        ("Muon", {}, 4 * 24),
    ],
)
def test_init_state_is_zeros_of_the_stated_size(
    name: str, hyper: dict[str, Any], num_bytes: int
) -> None:
    """state_bytes is the size of what init_state gives, for a parameter of 2 x 3 x 4."""
    rule = rule_named(name)
    state = init_state(rule, (2, 3, 4), hyper)
    assert state_bytes(rule, (2, 3, 4), hyper) == num_bytes
    assert sum(tensor.numel() * tensor.element_size() for tensor in state.values()) == num_bytes
    assert not any(tensor.any() for tensor in state.values())


@pytest.mark.parametrize(
    ("name", "hyper", "state", "value"),
    [
        ("Adagrad", {"initial_accumulator_value": 0.1}, "sum", 0.1),
        ("Rprop", {"lr": 0.3}, "step_size", 0.3),
        ("Rprop", {"lr": 0.3}, "prev", 0.0),
    ],
)
def test_init_state_has_the_initial_value(
    name: str, hyper: dict[str, Any], state: str, value: float
) -> None:
    """Adagrad begins with its accumulator, Rprop with the first step length."""
    torch.testing.assert_close(
        init_state(rule_named(name), (2, 3), hyper)[state], torch.full((2, 3), value)
    )
