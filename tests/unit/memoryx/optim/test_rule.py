"""Rules by name, and the state they keep."""

from __future__ import annotations

from typing import Any

import pytest

from memoryx.optim.rule import RULES, init_state, rule_named, state_bytes
from tests.support.errors import raises
from wsc.core.errors import ConfigError


def test_rule_named_suggests_the_nearest_name() -> None:
    """An unknown name is an error that names the rule that was meant."""
    with raises(ConfigError, "unknown-optimizer") as caught:
        rule_named("AdamWW")
    assert "'AdamW'" in str(caught.value.remedy)


def test_register_names_a_rule_after_its_class() -> None:
    """Names, costs and default hyper-parameters are complete."""
    assert list(RULES) == ["SGD", "Adam", "AdamW", "Lion", "Adafactor", "Lamb"]
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.flops_per_element > 0
        assert {"lr", "weight_decay"} <= set(dict(rule.Arguments()))


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
