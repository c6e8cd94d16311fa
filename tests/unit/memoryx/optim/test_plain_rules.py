"""Lion, Lamb and Adafactor follow their papers' formulas, written out here in float64."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from memoryx.optim.rule import Parameter, rule_named
from tests.support.plain_torch.optimizer_rules import assert_equals_torch, init_state

SHAPES = [(1,), (7,), (), (4, 6), (2, 3, 5), (65,)]
NUM_STEPS = 5
State = dict[str, torch.Tensor]
LION = {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}
LAMB = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.1, "adam": False}
ADAFACTOR = {
    "lr": 1e-2,
    "eps": (1e-30, 1e-3),
    "clip_threshold": 1.0,
    "decay_rate": -0.8,
    "beta1": None,
    "weight_decay": 0.0,
    "scale_parameter": True,
    "relative_step": False,
    "warmup_init": False,
}

MUON = {"lr": 0.02, "weight_decay": 0.01, "momentum": 0.95, "nesterov": True, "ns_steps": 5}
MATRICES = [(3, 5), (64, 16), (1, 9), (33, 65), (20, 20)]


def lion(
    p: torch.Tensor, g: torch.Tensor, state: State, hyper: dict[str, Any], step: int
) -> torch.Tensor:
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""
    beta1, beta2 = hyper["betas"]
    m = state.get("m", torch.zeros_like(p))
    c = beta1 * m + (1 - beta1) * g
    state["m"] = beta2 * m + (1 - beta2) * g
    return p - hyper["lr"] * (c.sign() + hyper["weight_decay"] * p)


def lamb(
    p: torch.Tensor, g: torch.Tensor, state: State, hyper: dict[str, Any], step: int
) -> torch.Tensor:
    """You et al. 2020, arXiv:1904.00962, algorithm 2 without correction, phi(z) = min(z, 10)."""
    beta1, beta2 = hyper["betas"]
    state["m"] = m = beta1 * state.get("m", 0 * p) + (1 - beta1) * g
    state["v"] = v = beta2 * state.get("v", 0 * p) + (1 - beta2) * g * g
    r = m / (v.sqrt() + hyper["eps"])
    u = r + hyper["weight_decay"] * p
    ratio = 1.0 if hyper["adam"] else p.norm().clamp(max=10) / u.norm()
    return p - hyper["lr"] * ratio * u


def adafactor(
    p: torch.Tensor, g: torch.Tensor, state: State, hyper: dict[str, Any], step: int
) -> torch.Tensor:
    """Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 and 5, with the paper's sums."""
    eps1, eps2 = hyper["eps"]
    rho = hyper["lr"]
    if hyper["relative_step"]:
        rho = min(1e-6 * step if hyper["warmup_init"] else 1e-2, 1 / math.sqrt(step))
    alpha = rho
    if hyper["scale_parameter"]:
        alpha = max(eps2, (p * p).mean().sqrt()) * rho
    beta2 = 1 - step ** hyper["decay_rate"]
    squares = g * g + eps1
    if p.dim() >= 2:
        row = squares.sum(-1, keepdim=True)
        column = squares.sum(-2, keepdim=True)
        state["r"] = r = beta2 * state.get("r", 0 * row) + (1 - beta2) * row
        state["c"] = c = beta2 * state.get("c", 0 * column) + (1 - beta2) * column
        v = r * c / r.sum(-2, keepdim=True)
    else:
        state["v"] = v = beta2 * state.get("v", 0 * p) + (1 - beta2) * squares
    u = g / v.sqrt()
    u = alpha * u / max(1.0, (u * u).mean().sqrt() / hyper["clip_threshold"])
    if hyper["beta1"] is not None:
        state["m"] = u = hyper["beta1"] * state.get("m", 0 * p) + (1 - hyper["beta1"]) * u
    return p * (1 - hyper["weight_decay"] * alpha) - u


@pytest.mark.parametrize(
    ("name", "formula", "hyper"),
    [
        ("Lion", lion, LION),
        ("Lamb", lamb, LAMB),
        ("Lamb", lamb, {**LAMB, "adam": True}),
        ("Adafactor", adafactor, ADAFACTOR),
        ("Adafactor", adafactor, {**ADAFACTOR, "beta1": 0.9, "weight_decay": 0.1}),
        ("Adafactor", adafactor, {**ADAFACTOR, "scale_parameter": False, "clip_threshold": 0.3}),
        ("Adafactor", adafactor, {**ADAFACTOR, "lr": None, "relative_step": True}),
        ("Adafactor", adafactor, {**ADAFACTOR, "relative_step": True, "warmup_init": True}),
    ],
)
def test_update_follows_the_paper_for_five_steps(name: Any, formula: Any, hyper: Any) -> None:
    """Masters stay within fp32 rounding of the float64 formula; gradients are only read."""
    generator = torch.Generator().manual_seed(1)
    rule = rule_named(name)
    masters = [torch.randn(shape, generator=generator) for shape in SHAPES]
    exact = [master.double() for master in masters]
    states = [init_state(rule, shape, hyper) for shape in SHAPES]
    exact_states: list[State] = [{} for _ in SHAPES]
    for step in range(1, NUM_STEPS + 1):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        kept = [gradient.clone() for gradient in gradients]
        rule.update([*map(Parameter, masters, gradients, states)], hyper, step)
        assert all(map(torch.equal, gradients, kept))
        exact = [
            formula(p, g.double(), state, hyper, step)
            for p, g, state in zip(exact, gradients, exact_states, strict=True)
        ]
    for master, p in zip(masters, exact, strict=True):
        torch.testing.assert_close(master.double(), p, rtol=1e-5, atol=1e-6)


def test_adafactor_equals_torch_where_both_agree() -> None:
    """Without weight decay and with lr below 1/sqrt(step) torch's Adafactor agrees."""
    rule = rule_named("Adafactor")
    master = torch.randn(4, 6)
    parameter = torch.nn.Parameter(master.clone())
    theirs = torch.optim.Adafactor([parameter], lr=1e-2, weight_decay=0.0)
    state = init_state(rule, (4, 6), ADAFACTOR)
    for step in range(1, NUM_STEPS + 1):
        parameter.grad = torch.randn(4, 6)
        theirs.step()
        rule.update([Parameter(master, parameter.grad, state)], ADAFACTOR, step)
    torch.testing.assert_close(master, parameter.data)


def test_lamb_with_ratio_one_is_uncorrected_adamw() -> None:
    """adam=True leaves AdamW with correct_bias False."""
    rule, hyper = rule_named("Lamb"), {**LAMB, "adam": True}
    master = torch.randn(65)
    other, adamw = master.clone(), rule_named("AdamW")
    uncorrected = {**LAMB, "correct_bias": False, "amsgrad": False}
    state, other_state = init_state(rule, (65,), hyper), init_state(adamw, (65,), uncorrected)
    for step in range(1, NUM_STEPS + 1):
        gradient = torch.randn(65)
        rule.update([Parameter(master, gradient, state)], hyper, step)
        adamw.update([Parameter(other, gradient, other_state)], uncorrected, step)
    torch.testing.assert_close(master, other)


def test_lamb_limits_the_norm_of_the_parameter() -> None:
    """A norm of 100 counts as 10: with u of norm 2 the step is lr * 10 / 2 * u."""
    rule, hyper = rule_named("Lamb"), {**LAMB, "weight_decay": 0.0, "betas": (0.0, 0.0)}
    master = torch.full((4,), 50.0)
    rule.update([Parameter(master, torch.ones(4), init_state(rule, (4,), hyper))], hyper, 1)
    torch.testing.assert_close(master, torch.full((4,), 50.0 - 1e-2 * 5), rtol=1e-6, atol=0)


def test_lamb_moves_a_parameter_that_is_zero() -> None:
    """A zero parameter has trust ratio 1, so that it does not stay zero for ever."""
    rule = rule_named("Lamb")
    master = torch.zeros(3)
    rule.update([Parameter(master, torch.ones(3), init_state(rule, (3,), LAMB))], LAMB, 1)
    torch.testing.assert_close(master, torch.full((3,), -1e-2 * 0.1 / (1e-3**0.5 + 1e-6)))


@pytest.mark.parametrize(
    ("name", "hyper"), [("Lion", LION), ("Lamb", LAMB), ("Adafactor", ADAFACTOR)]
)
def test_update_with_a_zero_gradient_has_no_nan(name: Any, hyper: Any) -> None:
    """No rule divides by zero when a gradient vanishes at the first step."""
    rule = rule_named(name)
    for shape in SHAPES:
        master = torch.ones(shape)
        state = init_state(rule, shape, hyper)
        rule.update([Parameter(master, torch.zeros(shape), state)], hyper, 1)
        assert torch.isfinite(master).all()


@pytest.mark.parametrize(
    "hyper",
    [MUON, {**MUON, "nesterov": False, "weight_decay": 0.0}, {**MUON, "ns_steps": 3}],
)
def test_update_of_matrices_equals_torch_bitwise(hyper: dict[str, Any]) -> None:
    """Five steps on views at odd offsets, tall, wide and square."""
    assert_equals_torch("Muon", partial(torch.optim.Muon, **hyper), hyper, MATRICES)


def updated(shape: tuple[int, ...], gradient: torch.Tensor) -> torch.Tensor:
    rule, master = rule_named("Muon"), torch.ones(shape)
    state = init_state(rule, shape, MUON)
    rule.update([Parameter(master, gradient.reshape(shape), state)], MUON, 1)
    return master


@pytest.mark.parametrize(("shape", "matrix"), [((4, 2, 3), (4, 6)), ((7,), (1, 7)), ((), (1, 1))])
def test_update_treats_other_shapes_as_matrices(shape: Any, matrix: Any) -> None:
    """The first dimension gives the rows; a vector and a scalar have one row."""
    gradient = torch.randn(matrix)
    assert torch.equal(updated(shape, gradient).reshape(matrix), updated(matrix, gradient))


def test_update_makes_singular_values_nearly_one() -> None:
    """A gradient of any scale changes the parameter by singular values of about lr."""
    change = (
        torch.ones(8, 8) * (1 - 0.02 * 0.01) - updated((8, 8), 1e3 * torch.randn(8, 8))
    ) / 0.02
    values = torch.linalg.svdvals(change)
    assert values.max() < 1.3
    assert values[:4].min() > 0.6


def test_update_with_a_zero_gradient_only_decays() -> None:
    """The norm is bounded from below, so that nothing is divided by zero."""
    torch.testing.assert_close(
        updated((3, 4), torch.zeros(3, 4)), torch.full((3, 4), 1 - 0.02 * 0.01)
    )
