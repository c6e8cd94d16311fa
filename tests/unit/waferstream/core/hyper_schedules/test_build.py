"""Schedules are built from plain data by the names of their schedulers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import SCHEDULES, scheduler_name
from waferstream.core.hyper_schedules.build import build_schedule, resolve
from waferstream.core.hyper_schedules.composed import ChainedLR, SequentialLR
from waferstream.core.hyper_schedules.decays import ConstantLR, LinearLR

CHAIN = {
    "schedulers": [
        {"LinearLR": {"initial_learning_rate": 0, "end_learning_rate": 1, "total_iters": 5}},
        {"ConstantLR": {"learning_rate": 1, "total_iters": 7}},
        {"CosineDecayLR": {"initial_learning_rate": 1, "end_learning_rate": 0, "total_iters": 9}},
    ]
}


def test_build_schedule_from_plain_data() -> None:
    """Nested mappings build; milestones are the running sums, given so or left out."""
    schedule: Any = build_schedule("SequentialLR", CHAIN, "params.yaml")
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
            "'milestones'",
        ),
        ("SequentialLR", {"schedulers": []}, "out-of-range", "'schedulers'"),
        ("SequentialLR", {"schedulers": [{"A": {}, "B": {}}]}, "not-a-schedule", "schedulers[0]"),
        ("SequentialLR", {"schedulers": [{"StepLr": {}}]}, "unknown-schedule", "'StepLR'"),
        ("SequentialLR", {**CHAIN, "milestones": [5, 13]}, "not-allowed", "[5, 12]"),
        ("SequentialWD", CHAIN, "part-of-other-family", "schedulers[0].LinearLR"),
        ("LinearWD", {"initial_learning_rat": 1}, "unknown-key", "'initial_learning_rat'"),
        ("ScalePerParamLR", {"scheduler": {"StepLr": {}}}, "unknown-schedule", "'StepLR'"),
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
    assert len(SCHEDULES) == 18


def test_resolve_finds_every_scheduler_of_both_families() -> None:
    """Weight decay has WD in place of LR; ChainedScheduler is torch's name of ChainedLR."""
    for name in SCHEDULES:
        assert resolve(name, "here") == ("lr", name)
        assert resolve(scheduler_name(name, "weight_decay"), "here") == ("weight_decay", name)
    assert scheduler_name("CosineAnnealingWarmRestarts", "lr") == "CosineAnnealingWarmRestarts"
    assert resolve("ChainedScheduler", "here") == ("lr", "ChainedLR")


def test_build_schedule_of_weight_decay_has_its_own_arguments() -> None:
    """Nested schedules, too, have ``val`` where a learning rate has ``learning_rate``."""
    line = {"initial_val": 1.0, "end_val": 0.0, "total_iters": 4}
    parts = [{"LinearWD": line}, {"ConstantWD": {"val": 0.5}}]
    assert build_schedule("SequentialWD", {"schedulers": parts}, "here") == SequentialLR(
        schedulers=(
            LinearLR(initial_learning_rate=1.0, end_learning_rate=0.0, total_iters=4),
            ConstantLR(learning_rate=0.5),
        ),
        milestones=(4,),
    )


def test_build_schedule_of_a_chain_by_torchs_name() -> None:
    """Parts are mappings or schedules."""
    part = {"ConstantLR": {"learning_rate": 2.0}}
    built = build_schedule("ChainedScheduler", {"schedulers": [part, part]}, "here")
    assert isinstance(built, ChainedLR)
    assert built.at(3) == 2.0
