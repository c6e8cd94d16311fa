"""Moving averages of weights: who averages whom, and by how much."""

from __future__ import annotations

import torch
from torch import nn

from waferstream.compiler.capture.capture import masters_of
from waferstream.core.hyper_schedules.decays import LinearLR
from waferstream.core.optimizer.weight_averages import (
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
