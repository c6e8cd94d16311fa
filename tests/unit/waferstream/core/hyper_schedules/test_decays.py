"""Decays have torch's values where torch has the class, and stay in bounds."""

from __future__ import annotations

from math import cos, pi
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as torch_lr

from tests.support.plain_torch.torch_schedules import torch_values
from waferstream.core.hyper_schedules.decays import (
    ConstantLR,
    CosineAnnealingLR,
    CosineDecayLR,
    ExponentialLR,
    InverseExponentialTimeDecayLR,
    InverseSquareRootDecayLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PiecewiseConstantLR,
    PolynomialLR,
    StepLR,
)

rates = st.floats(0.0, 10.0)
lengths = st.integers(1, 10_000)
steps = st.integers(0, 30_000)


@pytest.mark.parametrize(
    ("ours", "make"),
    [
        (ConstantLR(learning_rate=0.5), lambda o: torch_lr.ConstantLR(o, factor=1.0)),
        (
            LinearLR(initial_learning_rate=0.5, end_learning_rate=0.05, total_iters=7),
            lambda o: torch_lr.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=7),
        ),
        (
            PolynomialLR(
                initial_learning_rate=0.5, end_learning_rate=0.0, total_iters=7, power=2.0
            ),
            lambda o: torch_lr.PolynomialLR(o, total_iters=7, power=2.0),
        ),
        (
            ExponentialLR(initial_learning_rate=0.5, total_iters=1, decay_rate=0.9),
            lambda o: torch_lr.ExponentialLR(o, gamma=0.9),
        ),
        (
            CosineAnnealingLR(initial_learning_rate=0.5, T_max=7, eta_min=0.01),
            lambda o: torch_lr.CosineAnnealingLR(o, T_max=7, eta_min=0.01),
        ),
        (
            MultiplicativeLR(initial_learning_rate=0.5, coefficient=0.9),
            lambda o: torch_lr.MultiplicativeLR(o, lambda _: 0.9),
        ),
        (
            StepLR(initial_learning_rate=0.5, step_size=3, gamma=0.1),
            lambda o: torch_lr.StepLR(o, step_size=3, gamma=0.1),
        ),
        (
            MultiStepLR(initial_learning_rate=0.5, gamma=0.1, milestones=(2, 3, 11)),
            lambda o: torch_lr.MultiStepLR(o, milestones=[2, 3, 11], gamma=0.1),
        ),
        (
            PiecewiseConstantLR(milestones=(4, 9), learning_rates=(0.5, 0.05, 0.2)),
            lambda o: torch_lr.LambdaLR(o, lambda t: 1.0 if t < 4 else 0.1 if t < 9 else 0.4),
        ),
        (
            InverseSquareRootDecayLR(initial_learning_rate=0.5, scale=2.0, warmup_steps=4),
            lambda o: torch_lr.LambdaLR(o, lambda t: 2.0 * max(t, 4) ** -0.5),
        ),
        (
            InverseExponentialTimeDecayLR(
                initial_learning_rate=0.5, step_exponent=2, total_iters=5, decay_rate=0.3
            ),
            lambda o: torch_lr.LambdaLR(o, lambda t: 1 / (1 + 0.3 * t**2 / 5)),
        ),
        (
            CosineDecayLR(initial_learning_rate=0.5, end_learning_rate=0.05, total_iters=7),
            lambda o: torch_lr.LambdaLR(
                o, lambda t: 0.1 + 0.9 * (1 + cos(pi * min(t, 7) / 7)) / 2
            ),
        ),
    ],
)  # fmt: skip
def test_schedule_values_equal_torch(ours: Any, make: Any) -> None:
    """At each of 20 steps the value is that of the equivalent torch scheduler."""
    assert [ours.at(step) for step in range(20)] == pytest.approx(torch_values(make, 0.5, 20))


@given(rates, rates, lengths, steps, st.floats(0.0, 5.0), st.booleans())
def test_decays_stay_between_initial_and_end(
    initial: float, end: float, total_iters: Any, step: int, power: Any, cycle: Any
) -> None:
    """A decay never leaves the range of its two ends, at any step, cycling or not."""
    shape = {
        "initial_learning_rate": initial,
        "end_learning_rate": end,
        "total_iters": total_iters,
    }
    low, high = sorted((initial, end))
    for schedule in (
        LinearLR(**shape, cycle=cycle),
        PolynomialLR(**shape, power=power, cycle=cycle),
        CosineDecayLR(**shape),
    ):
        assert low - 1e-12 <= schedule.at(step) <= high + 1e-12


@given(rates, rates, lengths)
def test_decays_begin_and_end_exactly(initial: float, end: float, total_iters: Any) -> None:
    """Step 0 has the initial value, total_iters and everything after it the end value."""
    shape = {
        "initial_learning_rate": initial,
        "end_learning_rate": end,
        "total_iters": total_iters,
    }
    for schedule in (LinearLR(**shape), PolynomialLR(**shape, power=2.0), CosineDecayLR(**shape)):
        assert schedule.at(0) == initial
        assert schedule.at(total_iters) == schedule.at(10 * total_iters) == end


def test_cycle_restarts_lower_each_time() -> None:
    """With cycle the value leaps up after every total_iters steps, less high each time."""
    schedule = LinearLR(initial_learning_rate=1.0, end_learning_rate=0.0, total_iters=4, cycle=True)
    assert schedule.at(4) == 0.0
    assert schedule.at(5) == pytest.approx(1 - 5 / 8)
    assert schedule.at(9) == pytest.approx(1 - 9 / 12)


def test_staircase_rounds_the_exponent_down() -> None:
    """A staircase holds each value for total_iters steps."""
    schedule = ExponentialLR(
        initial_learning_rate=1.0, total_iters=3, decay_rate=0.5, staircase=True
    )
    assert [schedule.at(step) for step in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    inverse = InverseExponentialTimeDecayLR(
        initial_learning_rate=1.0, step_exponent=1, total_iters=3, decay_rate=1.0, staircase=True
    )
    assert [inverse.at(step) for step in range(4)] == [1, 1, 1, 0.5]
