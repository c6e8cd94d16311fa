"""Numbers of steps and schedules."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from cstorch.utils.data import DataLoader, Schedule, compute_num_steps, infer_batch_size
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def loader(batches: int | None = 5) -> DataLoader:
    if batches is None:
        return DataLoader(lambda: (torch.zeros(2) for _ in range(3)))
    return DataLoader(lambda: [torch.zeros(2)] * batches)


def test_a_range_counts_its_last_step_if_asked() -> None:
    plain = Schedule.Range(start=1, end=8, step=3)
    assert list(plain) == [1, 4, 7]
    extra = Schedule.Range(start=1, end=9, step=3, include_last=True)
    assert list(extra) == [1, 4, 7, 8]
    assert (len(extra), len(extra.range())) == (4, 3)
    assert [step for step in range(10) if extra.match(step)] == [1, 4, 7, 8]


@pytest.mark.parametrize(("step", "expected"), [(0, 1), (2, 4), (7, 7), (8, 8), (9, 9)])
def test_next_immediate_step(step: int, expected: int) -> None:
    part = Schedule.Range(start=1, end=9, step=3, include_last=True)
    assert part.next_immediate_step(step) == expected


def test_a_schedule_is_a_union() -> None:
    schedule = Schedule([Schedule.Range(0, 4, 2), Schedule.Range(3, 4)])
    assert [step for step in range(6) if step in schedule] == [0, 2, 3]
    assert asdict(schedule)["ranges"][1]["start"] == 3


def test_batch_size_is_known_if_all_tensors_agree() -> None:
    assert infer_batch_size({"x": torch.zeros(4, 2), "y": [torch.zeros(4)]}) == 4
    assert infer_batch_size([torch.zeros(4), torch.zeros(3)]) is None
    assert infer_batch_size([]) is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"num_steps": 7}, 7),
        ({"max_steps": 10, "initial_step": 4}, 6),
        ({"num_steps": 3, "max_steps": 10}, 3),
        ({"num_epochs": 2}, 10),
        ({"num_epochs": 2, "steps_per_epoch": 3}, 6),
        ({"num_epochs": 1, "grad_accum_steps": 2}, 2),
    ],
)
def test_num_steps(limits: dict[str, int], expected: int) -> None:
    assert compute_num_steps(loader(), **limits) == expected


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"num_steps": 1, "num_epochs": 1}, "num-steps-and-num-epochs"),
        ({}, "loop-length-unknown"),
        ({"max_steps": 4, "initial_step": 4}, "no-step-left"),
        ({"num_epochs": 1, "steps_per_epoch": 6}, "steps-per-epoch-exceed-epoch"),
    ],
)
def test_num_steps_of_wrong_limits(limits: dict[str, int], code: str) -> None:
    with raises(ConfigError, code):
        compute_num_steps(loader(), **limits)


def test_an_epoch_needs_a_length() -> None:
    with raises(ConfigError, "epoch-length-unknown"):
        compute_num_steps(loader(None), num_epochs=1)
