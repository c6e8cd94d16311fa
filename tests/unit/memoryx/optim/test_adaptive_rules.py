"""Adadelta, Adagrad, RMSprop, Adamax, NAdam and RAdam are torch's, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, rule_named
from tests.support.plain_torch.optimizer_rules import assert_equals_torch, init_state

SHAPES = [(1,), (7,), (64,), (3, 5), (10_003,), ()]
BETAS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.0}
ADADELTA = {"lr": 0.5, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0, "maximize": False}
ADAGRAD = {
    "lr": 0.1,
    "lr_decay": 0.0,
    "weight_decay": 0.0,
    "initial_accumulator_value": 0.0,
    "eps": 1e-6,
    "maximize": False,
}
RMSPROP = {
    "lr": 1e-2,
    "alpha": 0.99,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "momentum": 0.0,
    "centered": False,
}
ADAMAX = {**BETAS, "maximize": False}
NADAM = {**BETAS, "momentum_decay": 4e-3}


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("Adadelta", ADADELTA),
        ("Adadelta", {**ADADELTA, "weight_decay": 0.1, "maximize": True}),
        ("Adagrad", ADAGRAD),
        ("Adagrad", {**ADAGRAD, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
        ("Adagrad", {**ADAGRAD, "weight_decay": 0.1, "maximize": True}),
        ("RMSprop", RMSPROP),
        ("RMSprop", {**RMSPROP, "momentum": 0.9, "weight_decay": 0.1}),
        ("RMSprop", {**RMSPROP, "centered": True}),
        ("RMSprop", {**RMSPROP, "momentum": 0.9, "centered": True}),
        ("Adamax", ADAMAX),
        ("Adamax", {**ADAMAX, "weight_decay": 0.1, "maximize": True}),
        ("NAdam", NADAM),
        ("NAdam", {**NADAM, "weight_decay": 0.1, "momentum_decay": 0.3}),
        ("RAdam", BETAS),
        ("RAdam", {**BETAS, "weight_decay": 0.1, "betas": (0.9, 0.999)}),
    ],
)
def test_update_equals_torch_bitwise(name: str, hyper: dict[str, Any]) -> None:
    """Eight steps on views at odd offsets; RAdam rectifies from the sixth on."""
    make = partial(getattr(torch.optim, name), **hyper, foreach=False)
    assert_equals_torch(name, make, hyper, SHAPES, num_steps=8)


def test_nadam_equals_torch_after_its_momentum_product_vanishes() -> None:
    """With these betas the product of momenta underflows in fp32 within 120 steps."""
    hyper: dict[str, Any] = {**NADAM, "betas": (0.5, 0.95)}
    make = partial(torch.optim.NAdam, **hyper, foreach=False)
    assert_equals_torch("NAdam", make, hyper, [(3,)], num_steps=120)


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("Adadelta", ADADELTA),
        ("Adagrad", ADAGRAD),
        ("RMSprop", RMSPROP),
        ("Adamax", ADAMAX),
        ("NAdam", NADAM),
        ("RAdam", BETAS),
    ],
)
def test_update_with_a_zero_gradient_changes_nothing(name: str, hyper: dict[str, Any]) -> None:
    """No rule divides zero by zero at the first step."""
    rule, master = rule_named(name), torch.ones(5)
    rule.update([Parameter(master, torch.zeros(5), init_state(rule, (5,), hyper))], hyper, 1)
    assert torch.equal(master, torch.ones(5))
