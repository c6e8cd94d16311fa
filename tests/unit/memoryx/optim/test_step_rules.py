"""ASGD and Rprop are torch's, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, rule_named
from tests.support.errors import raises
from tests.support.plain_torch.optimizer_rules import assert_equals_torch, init_state
from waferstream.core.errors import ConfigError

SHAPES = [(1,), (7,), (64,), (3, 5), (10_003,), ()]
ASGD = {
    "lr": 0.1,
    "lambd": 1e-4,
    "alpha": 0.75,
    "t0": 1e6,
    "weight_decay": 0.0,
    "maximize": False,
}
RPROP = {"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0)}


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("ASGD", ASGD),
        ("ASGD", {**ASGD, "weight_decay": 0.1, "maximize": True}),
        ("ASGD", {**ASGD, "t0": 2.0, "lambd": 0.1, "alpha": 0.5}),
        ("Rprop", RPROP),
        ("Rprop", {**RPROP, "etas": (0.3, 3.0), "step_sizes": (5e-3, 2e-2)}),
    ],
)
def test_update_equals_torch_bitwise(name: str, hyper: dict[str, Any]) -> None:
    """Eight steps on views at odd offsets, averages and step lengths included."""
    make = partial(getattr(torch.optim, name), **hyper, foreach=False)
    assert_equals_torch(name, make, hyper, SHAPES, num_steps=8)


def test_rprop_skips_a_gradient_that_changed_its_sign() -> None:
    """The step length shrinks and the parameter stays where it is for one step."""
    rule, master = rule_named("Rprop"), torch.zeros(1)
    state = init_state(rule, (1,), RPROP)
    positions = []
    for step, gradient in enumerate([1.0, -1.0, -1.0], start=1):
        rule.update([Parameter(master, torch.tensor([gradient]), state)], RPROP, step)
        positions.append(master.item())
    assert positions == pytest.approx([-0.01, -0.01, -0.005])


def test_rprop_refuses_step_sizes_in_the_wrong_order() -> None:
    """Each alone would be allowed."""
    with raises(ConfigError, "step-sizes-not-ordered"):
        rule_named("Rprop").check({**RPROP, "step_sizes": (2.0, 1.0)}, "here")
