"""SGD, Adam and AdamW of MemoryX: torch's fused optimizers bit for bit, or the vendor's rule."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, rule_named
from tests.support.plain_torch.optimizer_rules import assert_equals_torch, init_state
from tests.support.plain_torch.plain_sgd import SGD

SHAPES = [(1,), (7,), (64,), (3, 5), (100_003,), ()]
ADAM = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.0, "amsgrad": False}

CASES = [
    ("SGD", torch.optim.SGD, SGD),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "nesterov": True}),
    ("SGD", torch.optim.SGD, {**SGD, "momentum": 0.9, "maximize": True}),
    ("Adam", torch.optim.Adam, ADAM),
    ("Adam", torch.optim.Adam, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", torch.optim.AdamW, ADAM),
    ("AdamW", torch.optim.AdamW, {**ADAM, "weight_decay": 0.1}),
    ("AdamW", torch.optim.AdamW, {**ADAM, "weight_decay": 0.1, "amsgrad": True}),
]


def complete(name: str, hyper: dict[str, Any]) -> dict[str, Any]:
    """Return the hyper-parameters as MemoryX names them, ``eps`` placed as torch does."""
    placed = hyper if name == "SGD" else {**hyper, "eps_after_correction": True}
    return {**placed, "correct_bias": True} if name == "AdamW" else placed


@pytest.mark.parametrize(("name", "reference", "hyper"), CASES)
def test_update_equals_torchs_fused_optimizer_bitwise(
    name: str, reference: Any, hyper: dict[str, Any]
) -> None:
    """Five steps on views at odd offsets equal torch's on its own tensors."""
    make = partial(reference, **hyper, fused=True)
    assert_equals_torch(name, make, complete(name, hyper), SHAPES)


def test_sgd_dampens_the_first_gradient() -> None:
    """b_t = 0.9 b_{t-1} + 0.5 g from b_0 = 0, as at the vendor's; torch begins with b_1 = g."""
    hyper = {**SGD, "lr": 1.0, "momentum": 0.9, "dampening": 0.5}
    rule, master = rule_named("SGD"), torch.zeros(3)
    state = init_state(rule, (3,), hyper)
    for step in (1, 2):
        rule.update([Parameter(master, torch.ones(3), state)], hyper, step)
    torch.testing.assert_close(master, torch.full((3,), -(0.5 + 0.95)))


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_adam_adds_eps_to_the_uncorrected_root(name: str, amsgrad: bool) -> None:
    """p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), where eps is about sqrt(v)."""
    hyper = {**ADAM, "eps": 1e-2, "amsgrad": amsgrad, "correct_bias": True, "weight_decay": 0.1}
    rule, master = rule_named(name), torch.linspace(-1, 1, 7)
    state = init_state(rule, (7,), hyper)
    p = master.double()
    first, second, largest = (torch.zeros(7, dtype=torch.float64) for _ in range(3))
    for step in range(1, 5):
        gradient = torch.linspace(-0.1, 0.2, 7) / step
        rule.update([Parameter(master, gradient, state)], hyper, step)
        g = gradient.double() + (0.1 * p if name == "Adam" else 0.0)
        first, second = 0.9 * first + 0.1 * g, 0.95 * second + 0.05 * g * g
        largest = torch.maximum(largest, second) if amsgrad else second
        rate = 1e-2 * (1 - 0.95**step) ** 0.5 / (1 - 0.9**step)
        shrunk = p * (1 - 1e-2 * 0.1) if name == "AdamW" else p
        p = shrunk - rate * first / (largest.sqrt() + 1e-2)
    torch.testing.assert_close(master.double(), p, rtol=1e-6, atol=1e-7)


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
