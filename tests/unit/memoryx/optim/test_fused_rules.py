"""SGD, Adam and AdamW of MemoryX are torch's fused optimizers, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, init_state, rule_named
from tests.support.optimizer_rules import assert_equals_torch
from tests.support.plain_sgd import SGD

SHAPES = [(1,), (7,), (64,), (3, 5), (100_003,), ()]
ADAM = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.0, "amsgrad": False}

CASES = [
    ("SGD", torch.optim.SGD, SGD),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "nesterov": True}),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adam", torch.optim.Adam, ADAM),
    ("Adam", torch.optim.Adam, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", torch.optim.AdamW, ADAM),
    ("AdamW", torch.optim.AdamW, {**ADAM, "weight_decay": 0.1}),
    ("AdamW", torch.optim.AdamW, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
]


def complete(name: str, hyper: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters as MemoryX names them."""
    return {**hyper, "correct_bias": True} if name == "AdamW" else hyper


@pytest.mark.parametrize(("name", "reference", "hyper"), CASES)
def test_update_equals_torchs_fused_optimizer_bitwise(
    name: str, reference: Any, hyper: dict[str, Any]
) -> None:
    """Five steps on views at odd offsets equal torch's on its own tensors."""
    make = partial(reference, **hyper, fused=True)
    assert_equals_torch(name, make, complete(name, hyper), SHAPES)


def test_update_does_not_depend_on_other_parameters() -> None:
    """Updating parameters in one call, in several, or in another order is the same."""
    rule, hyper = rule_named("AdamW"), complete("AdamW", ADAM)
    gradients = [torch.randn(shape) for shape in SHAPES]
    together, alone = ([torch.ones(shape) for shape in SHAPES] for _ in range(2))
    states = [init_state(rule, shape, hyper) for shape in SHAPES]
    rule.update([*map(Parameter, together, gradients, states)], hyper, 1)
    for index in reversed(range(len(SHAPES))):
        state = init_state(rule, SHAPES[index], hyper)
        rule.update([Parameter(alone[index], gradients[index], state)], hyper, 1)
    assert all(map(torch.equal, together, alone))


def test_adamw_without_bias_correction() -> None:
    """correct_bias False gives p (1 - lr wd) - lr m / (sqrt(v) + eps)."""
    rule = rule_named("AdamW")
    hyper = {**ADAM, "weight_decay": 0.1, "correct_bias": False}
    master, gradient = torch.randn(65), torch.randn(65)
    first, second = 0.1 * gradient, 0.05 * gradient**2
    expected = master * (1 - 1e-2 * 0.1) - 1e-2 * first / (second.sqrt() + 1e-6)
    rule.update([Parameter(master, gradient, init_state(rule, (65,), hyper))], hyper, 1)
    torch.testing.assert_close(master, expected)
