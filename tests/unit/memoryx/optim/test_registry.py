"""Rules are found by name and say how much state they keep."""

import pytest

from memoryx.optim.registry import rule_named
from memoryx.optim.rule import init_state, state_bytes
from wsc.core.errors import ConfigError


def test_an_unknown_rule_is_refused_with_the_nearest_name():
    """The error names the rule that was meant."""
    with pytest.raises(ConfigError, match="did you mean 'AdamW'"):
        rule_named("AdamWW")


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
def test_state_is_fp32_zeros_of_the_stated_size(name, hyper, num_bytes):
    """state_bytes is the size of what init_state gives, for a parameter of 2 x 3 x 4."""
    rule = rule_named(name)
    state = init_state(rule, (2, 3, 4), hyper)
    assert state_bytes(rule, (2, 3, 4), hyper) == num_bytes
    assert sum(tensor.numel() * tensor.element_size() for tensor in state.values()) == num_bytes
    assert not any(tensor.any() for tensor in state.values())
