"""The steps of a fit: how many, and what follows which."""

from __future__ import annotations

from typing import Any

import pytest

from cstorch.trainer import CSConfig
from cstorch.trainer.data import FitPlan, Limited, Loaders
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

EPOCH = [0] * 5


def plan(evaluates: bool = True, done: int = 0, loader: Any = EPOCH, **options: Any) -> FitPlan:
    return FitPlan.of(CSConfig(**options), loader, done, evaluates)


def ends(made: FitPlan) -> list[int]:
    return [part.stop - 1 for part in made.parts()]


def test_evaluation_follows_each_epoch_and_the_last_step() -> None:
    assert ends(plan(max_epochs=2)) == [5, 10]
    assert ends(plan(max_steps=7)) == [5, 7]
    assert ends(plan(max_steps=7, eval_frequency=3)) == [3, 6, 7]
    assert ends(plan(evaluates=False, max_epochs=3)) == [15]


def test_fit_without_settings_is_an_epoch() -> None:
    assert plan(evaluates=False).num_steps == 5
    assert plan(fast_dev_run=True, max_steps=100).num_steps == 1


def test_steps_are_told_and_saved_at_their_intervals() -> None:
    made = plan(max_steps=7, log_steps=3, checkpoint_steps=4, done=2)
    assert [step for step in range(1, 8) if made.is_logged(step)] == [3, 6, 7]
    assert [step for step in range(1, 8) if made.is_saved(step)] == [2, 6, 7]


def test_loader_without_a_length_needs_a_number_of_steps() -> None:
    def endless() -> Any:
        yield from ()

    with raises(ConfigError, "num-steps-unknown"):
        plan(loader=endless())
    assert ends(plan(loader=endless(), max_steps=4, eval_frequency=2)) == [2, 4]


def test_loader_is_shortened_in_each_epoch() -> None:
    short = Limited([1, 2, 3], 2)
    assert (list(short), list(short), len(short)) == ([1, 2], [1, 2], 2)
    assert len(Limited([1], 2)) == 1
    loaders = Loaders()
    assert loaders.of(EPOCH, 2) is loaders.of(EPOCH, 2)
    assert loaders.of(EPOCH, None) is EPOCH
    assert list(loaders.of(lambda: [1, 2, 3], 1)()) == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 1, "max_epochs": 1},
        {"max_gradient_norm": 1.0, "max_gradient_value": 1.0},
        {"ema_decay": 1.0},
        {"precision": "fp8"},
        {"max_gradient_norm": 0.0},
    ],
    ids=str,
)
def test_settings_that_exclude_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CSConfig(**options)
