"""Schedules have torch's values where torch has the class, stay in bounds, and are built by name."""

from __future__ import annotations

import pickle
from math import cos, pi
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as torch_lr

from tests.support.errors import raises
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import (
    SCHEDULES,
    ConstantLR,
    CosineAnnealingLR,
    CosineDecayLR,
    ExponentialLR,
    InverseExponentialTimeDecayLR,
    InverseSquareRootDecayLR,
    LinearLR,
    MultiStepLR,
    PiecewiseConstantLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
    build_schedule,
)

rates = st.floats(0.0, 10.0)
lengths = st.integers(1, 10_000)
steps = st.integers(0, 30_000)


def torch_values(make, initial, num_steps):
    """Learning rates of a torch scheduler at steps 0 .. num_steps - 1."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=initial)
    scheduler = make(optimizer)
    values = []
    for _ in range(num_steps):
        values.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return values


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


def test_sequential_equals_torch() -> None:
    """Warm-up then cosine gives torch's SequentialLR, milestones found by itself."""
    ours = SequentialLR(
        schedulers=(
            LinearLR(initial_learning_rate=0.05, end_learning_rate=0.5, total_iters=5),
            CosineAnnealingLR(initial_learning_rate=0.5, T_max=10),
        )
    )

    def make(optimizer):
        warmup = torch_lr.LinearLR(optimizer, start_factor=0.1, total_iters=5)
        cosine = torch_lr.CosineAnnealingLR(optimizer, T_max=10)
        return torch_lr.SequentialLR(optimizer, [warmup, cosine], milestones=[5])

    # Before it reaches T_max; torch's recursion drifts from its own closed form afterwards.
    assert [ours.at(step) for step in range(15)] == pytest.approx(torch_values(make, 0.5, 15))


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


@given(rates, rates, st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(0, 300))
def test_sequential_of_joined_lines_is_continuous(
    initial: float, end: float, lengths: Any, step: int
) -> None:
    """Lines that begin where the one before ended make no leap at a milestone."""
    values = [(initial, end)[index % 2] for index in range(len(lengths) + 1)]
    chain = SequentialLR(
        schedulers=tuple(
            LinearLR(initial_learning_rate=begin, end_learning_rate=stop, total_iters=length)
            for begin, stop, length in zip(values, values[1:], lengths, strict=False)
        )
    )
    leap = abs(chain.at(step + 1) - chain.at(step))
    assert leap <= abs(end - initial) / min(lengths) + 1e-9


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


def test_sequential_skips_a_warm_up_of_no_steps() -> None:
    """total_iters 0 hands over to the next schedule at step 0."""
    chain = SequentialLR(
        schedulers=(
            LinearLR(initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=0),
            ConstantLR(learning_rate=0.3),
        )
    )
    assert chain.at(0) == 0.3


CHAIN = {
    "schedulers": [
        {"LinearLR": {"initial_learning_rate": 0, "end_learning_rate": 1, "total_iters": 5}},
        {"ConstantLR": {"learning_rate": 1, "total_iters": 7}},
        {"CosineDecayLR": {"initial_learning_rate": 1, "end_learning_rate": 0, "total_iters": 9}},
    ]
}


def test_build_schedule_from_plain_data() -> None:
    """Nested mappings build; milestones are the running sums, given so or left out."""
    schedule = build_schedule("SequentialLR", CHAIN, "params.yaml")
    assert schedule == build_schedule("SequentialLR", {**CHAIN, "milestones": [5, 12]}, "again")
    assert schedule.milestones == (5, 12)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_milestones_are_needed_without_total_iters() -> None:
    """Without total_iters the milestones must be given, rising, one fewer than schedules."""
    parts = {"schedulers": [ConstantLR(learning_rate=1.0), ConstantLR(learning_rate=2.0)]}
    schedule = build_schedule("SequentialLR", {**parts, "milestones": [4]}, "here")
    assert (schedule.at(3), schedule.at(4)) == (1.0, 2.0)
    for milestones in ([], [4, 5]):
        with raises(ConfigError, "not-allowed"):
            build_schedule("SequentialLR", {**parts, "milestones": milestones}, "here")


STEP = {"initial_learning_rate": 1, "step_size": 0, "gamma": 1}
MULTI_STEP = {"initial_learning_rate": 1, "gamma": 1, "milestones": [3, 3]}


@pytest.mark.parametrize(
    ("name", "args", "code", "word"),
    [
        ("LinaerLR", {}, "unknown-schedule", "'LinearLR'"),
        ("ConstantLR", {"learning_rate": 1.0, "totl_iters": 3}, "unknown-key", "'total_iters'"),
        ("ConstantLR", {}, "missing-key", "'learning_rate'"),
        ("ConstantLR", {"learning_rate": -1.0}, "out-of-range", "'learning_rate'"),
        ("ConstantLR", {"learning_rate": float("nan")}, "out-of-range", "'learning_rate'"),
        ("StepLR", STEP, "out-of-range", "'step_size'"),
        ("MultiStepLR", MULTI_STEP, "not-allowed", "'milestones'"),
        (
            "PiecewiseConstantLR",
            {"learning_rates": [1.0], "milestones": [3]},
            "not-allowed",
            "'learning_rates'",
        ),
        ("SequentialLR", {"schedulers": []}, "out-of-range", "'schedulers'"),
        ("SequentialLR", {"schedulers": [{"A": {}, "B": {}}]}, "not-a-schedule", "schedulers[0]"),
        ("SequentialLR", {"schedulers": [{"StepLr": {}}]}, "unknown-schedule", "'StepLR'"),
        ("SequentialLR", {**CHAIN, "milestones": [5, 13]}, "not-allowed", "[5, 12]"),
    ],
)
def test_build_schedule_refuses_wrong_data(
    name: str, args: dict[str, Any], code: str, word: str
) -> None:
    """An unknown class, a wrong argument or a contradiction is a ConfigError that names it."""
    with raises(ConfigError, code) as caught:
        build_schedule(name, args, "here")
    assert str(caught.value.where).startswith("here")
    assert word in str(caught.value)


def test_every_schedule_is_registered_by_its_name() -> None:
    """The registry's names are the class names."""
    assert all(name == kind.__name__ for name, kind in SCHEDULES.items())
    assert len(SCHEDULES) == 12
