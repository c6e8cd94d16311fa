"""Sequences, chains and tables of schedules."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as torch_lr

from tests.support.errors import raises
from tests.support.plain_torch.torch_schedules import torch_values
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.composed import (
    ChainedLR,
    ScaledLR,
    SequentialLR,
    TabulatedLR,
)
from waferstream.core.hyper_schedules.decays import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    StepLR,
)

rates = st.floats(0.0, 10.0)


def test_sequential_equals_torch() -> None:
    """Warm-up then cosine gives torch's SequentialLR, milestones found by itself."""
    ours = SequentialLR(
        schedulers=(
            LinearLR(initial_learning_rate=0.05, end_learning_rate=0.5, total_iters=5),
            CosineAnnealingLR(initial_learning_rate=0.5, T_max=10),
        )
    )

    def make(optimizer: torch.optim.Optimizer) -> torch_lr.LRScheduler:
        warmup = torch_lr.LinearLR(optimizer, start_factor=0.1, total_iters=5)
        cosine = torch_lr.CosineAnnealingLR(optimizer, T_max=10)
        return torch_lr.SequentialLR(optimizer, [warmup, cosine], milestones=[5])

    # Before it reaches T_max; torch's recursion drifts from its own closed form afterwards.
    assert [ours.at(step) for step in range(15)] == pytest.approx(torch_values(make, 0.5, 15))


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


def test_sequential_skips_a_warm_up_of_no_steps() -> None:
    """total_iters 0 hands over to the next schedule at step 0."""
    chain = SequentialLR(
        schedulers=(
            LinearLR(initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=0),
            ConstantLR(learning_rate=0.3),
        )
    )
    assert chain.at(0) == 0.3


def test_chained_equals_torch() -> None:
    """Every schedule after the first multiplies by its share of its own initial value."""
    ours = ChainedLR(
        schedulers=(
            ExponentialLR(initial_learning_rate=0.5, total_iters=1, decay_rate=0.9),
            StepLR(initial_learning_rate=3.0, step_size=4, gamma=0.1),
        )
    )

    def make(optimizer: torch.optim.Optimizer) -> torch_lr.LRScheduler:
        decay = torch_lr.ExponentialLR(optimizer, gamma=0.9)
        stairs = torch_lr.StepLR(optimizer, step_size=4, gamma=0.1)
        return torch_lr.ChainedScheduler([decay, stairs])

    assert [ours.at(step) for step in range(15)] == pytest.approx(torch_values(make, 0.5, 15))


def test_chained_refuses_a_factor_that_begins_at_zero() -> None:
    """Its share of its initial value is undefined; the first schedule may begin at 0."""
    line = LinearLR(initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=4)
    assert ChainedLR(schedulers=(line, ConstantLR(learning_rate=2.0))).at(2) == 0.5
    with raises(ConfigError, "not-allowed"):
        ChainedLR(schedulers=(ConstantLR(learning_rate=2.0), line))


def test_scaled_multiplies_every_value() -> None:
    """A factor per parameter group."""
    line = LinearLR(initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=4)
    assert [ScaledLR(scheduler=line, factor=0.5).at(step) for step in (0, 2, 9)] == [0, 0.25, 0.5]


def test_tabulated_has_its_values_and_is_plain_data() -> None:
    """It travels to the weight servers without the function that it came from."""
    table = TabulatedLR(initial_learning_rate=1.0, values=(1.0, 0.3, 0.7))
    assert [pickle.loads(pickle.dumps(table)).at(step) for step in range(3)] == [1.0, 0.3, 0.7]
