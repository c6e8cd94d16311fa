"""Cyclic schedules have torch's values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as torch_lr

from tests.support.plain_torch.torch_schedules import torch_values
from waferstream.core.hyper_schedules.cycles import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_warm_restarts_equal_torch(factor: int) -> None:
    """At the restart the value is the initial one again; T_mult lengthens the periods."""
    ours = CosineAnnealingWarmRestarts(
        initial_learning_rate=0.5, T_0=4, T_mult=factor, eta_min=0.01
    )

    def make(optimizer: torch.optim.Optimizer) -> torch_lr.LRScheduler:
        return torch_lr.CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=factor, eta_min=0.01)

    assert [ours.at(step) for step in range(40)] == pytest.approx(torch_values(make, 0.5, 40))


@pytest.mark.parametrize("mode", ["triangular", "triangular2", "exp_range"])
@pytest.mark.parametrize("down", [None, 3])
def test_cyclic_equals_torch(mode: Any, down: int | None) -> None:
    """Up and down in 5 and 5, or 5 and 3 steps."""
    ours = CyclicLR(
        base_lr=0.1, max_lr=0.9, step_size_up=5, step_size_down=down, mode=mode, gamma=0.97
    )

    def make(optimizer: torch.optim.Optimizer) -> torch_lr.LRScheduler:
        return torch_lr.CyclicLR(
            optimizer, 0.1, 0.9, 5, down, mode=mode, gamma=0.97, cycle_momentum=False
        )

    assert [ours.at(step) for step in range(30)] == pytest.approx(torch_values(make, 0.1, 30))


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("three_phase", [False, True])
def test_one_cycle_equals_torch(strategy: Any, three_phase: bool) -> None:
    """torch's initial rate is max_lr / div_factor; it ends with an error after total_steps."""
    ours = OneCycleLR(
        initial_learning_rate=0.1,
        max_lr=1.0,
        total_steps=21,
        final_div_factor=50.0,
        three_phase=three_phase,
        anneal_strategy=strategy,
    )

    def make(optimizer: torch.optim.Optimizer) -> torch_lr.LRScheduler:
        return torch_lr.OneCycleLR(
            optimizer,
            max_lr=1.0,
            total_steps=21,
            div_factor=10.0,
            final_div_factor=50.0,
            three_phase=three_phase,
            anneal_strategy=strategy,
            cycle_momentum=False,
        )

    assert [ours.at(step) for step in range(20)] == pytest.approx(torch_values(make, 0.1, 20))
    assert ours.at(1000) == ours.at(20) == pytest.approx(0.1 / 50)


def test_one_cycle_without_a_rise_begins_at_the_maximum() -> None:
    """pct_start 0 leaves only the fall."""
    schedule = OneCycleLR(initial_learning_rate=0.1, max_lr=1.0, total_steps=10, pct_start=0.0)
    assert schedule.at(0) > 0.9
