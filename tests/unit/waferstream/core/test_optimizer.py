"""Moving averages of weights: who averages whom, and by how much."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from waferstream.compiler.capture.capture import masters_of
from waferstream.core.hyper_schedules.decays import LinearLR
from waferstream.core.optimizer import (
    LossScale,
    LossScaleRule,
    WeightAverage,
    advance,
    average_weights,
    averages_among,
)
from waferstream.core.program.stream_plan import assign_servers

DECAY = LinearLR(initial_learning_rate=0.5, end_learning_rate=1.0, total_iters=2)


def model() -> nn.ModuleDict:
    """A student and its teacher; the largest weights are theirs."""
    made = nn.ModuleDict({name: nn.Linear(4, 3) for name in ("teacher", "student", "other")})
    average_weights([*made["teacher"].parameters()], [*made["student"].parameters()], DECAY)
    return made


def test_averages_have_the_names_of_their_sources() -> None:
    made = model()
    names: dict[torch.Tensor, str] = {
        parameter: name for name, parameter in made.named_parameters()
    }
    assert tuple(averages_among(names)) == (
        WeightAverage("teacher.weight", "student.weight", DECAY),
        WeightAverage("teacher.bias", "student.bias", DECAY),
    )
    assert {spec.name: spec.average_of for spec in masters_of(made) if spec.average_of} == {
        "teacher.weight": "student.weight",
        "teacher.bias": "student.bias",
    }
    assert not any(parameter.requires_grad for parameter in made["teacher"].parameters())


def test_average_and_source_have_one_server() -> None:
    """Whatever the number of servers; the others share the rest."""
    specs = masters_of(model())
    for num_servers in range(1, 5):
        owner = assign_servers(specs, num_servers)
        assert owner.keys() == {spec.name for spec in specs}
        for spec in specs:
            assert not spec.average_of or owner[spec.name] == owner[spec.average_of]
    assert len(set(assign_servers(specs, 2).values())) == 2


def test_decay_follows_the_updates() -> None:
    """The first one, counted from 1, takes the second value of the schedule."""
    average = WeightAverage("a", "b", DECAY)
    assert [average.decay_at(update) for update in (1, 2, 3)] == [0.75, 1.0, 1.0]
    values = torch.tensor([4.0, 0.0])
    advance(values, torch.tensor([8.0, 4.0]), 0.75)
    assert values.tolist() == [5.0, 1.0]


def after(rule: LossScaleRule, start: float, finite: str) -> list[float]:
    """Return the scale after each step; ``finite`` has a ``+`` or ``-`` per step."""
    current, scales = LossScale(start), []
    for sign in finite:
        current = rule.after(current, sign == "+")
        scales.append(current.scale)
    return scales


@pytest.mark.parametrize(
    ("options", "finite", "scales"),
    [
        ({}, "+++++++", [8, 8, 16, 16, 16, 32, 32]),  # more than two steps, then three more
        ({}, "-+-++-", [4, 4, 2, 2, 2, 1]),  # any overflow halves and starts to count again
        ({"maximum": 16.0}, "++++++", [8, 8, 16, 16, 16, 16]),
        ({"minimum": 4.0}, "---", [4, 4, 4]),
        ({"overflow_tolerance": 0.5}, "+-+", [8, 8, 16]),  # 1 of 2 is not above one half
        ({"overflow_tolerance": 0.5}, "+--", [8, 8, 4]),  # 2 of 3 is
    ],
)
def test_scale_after_good_and_bad_steps(
    options: dict[str, float], finite: str, scales: list[float]
) -> None:
    limits = {"minimum": 2.0**-14, "maximum": 2.0**15, "overflow_tolerance": 0.0, **options}
    minimum, maximum, tolerance = limits.values()
    rule = LossScaleRule(2, minimum, maximum, tolerance)
    assert after(rule, 8.0, finite) == scales


def test_skipped_steps_are_counted() -> None:
    rule = LossScaleRule(2, 1.0, 2.0**15)
    current = LossScale(2.0**10)
    for is_finite in (False, True, False, True):
        current = rule.after(current, is_finite)
    assert current.num_skipped_steps == 2
    assert current.is_finite


def test_scale_is_exhausted_by_an_overflow_at_the_minimum() -> None:
    """The scale that the rule asks for is below the one that is allowed."""
    rule = LossScaleRule(2000, minimum=4.0, maximum=8.0)
    first = rule.after(LossScale(8.0), is_finite=False)
    assert (first.scale, first.is_exhausted) == (4.0, False)
    second = rule.after(first, is_finite=False)
    assert (second.scale, second.unlimited_scale, second.is_exhausted) == (4.0, 2.0, True)
    assert not rule.after(second, is_finite=True).is_exhausted
