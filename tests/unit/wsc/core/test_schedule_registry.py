"""Schedules are built from plain data, and what cannot be one is refused with a reason."""

import pickle

import pytest

from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import ConstantLR
from wsc.core.schedule_registry import SCHEDULES, build_schedule

CHAIN = {
    "schedulers": [
        {"LinearLR": {"initial_learning_rate": 0, "end_learning_rate": 1, "total_iters": 5}},
        {"ConstantLR": {"learning_rate": 1, "total_iters": 7}},
        {"CosineDecayLR": {"initial_learning_rate": 1, "end_learning_rate": 0, "total_iters": 9}},
    ]
}


def test_plain_data_builds_the_schedule_and_its_milestones():
    """Nested mappings build; milestones are the running sums, given so or left out."""
    schedule = build_schedule("SequentialLR", CHAIN, "params.yaml")
    assert schedule == build_schedule("SequentialLR", {**CHAIN, "milestones": [5, 12]}, "again")
    assert schedule.milestones == (5, 12)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_milestones_are_needed_where_a_length_is_not_known():
    """Without total_iters the milestones must be given, rising, one fewer than schedules."""
    parts = {"schedulers": [ConstantLR(learning_rate=1.0), ConstantLR(learning_rate=2.0)]}
    schedule = build_schedule("SequentialLR", {**parts, "milestones": [4]}, "here")
    assert (schedule.at(3), schedule.at(4)) == (1.0, 2.0)
    for milestones in ([], [4, 5]):
        with pytest.raises(ConfigError, match="milestones"):
            build_schedule("SequentialLR", {**parts, "milestones": milestones}, "here")


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("LinaerLR", {}, "did you mean 'LinearLR'"),
        ("ConstantLR", {"learning_rate": 1.0, "totl_iters": 3}, "did you mean 'total_iters'"),
        ("ConstantLR", {}, "'learning_rate' is missing"),
        ("ConstantLR", {"learning_rate": -1.0}, "greater than or equal to 0"),
        ("ConstantLR", {"learning_rate": float("nan")}, "finite"),
        ("StepLR", {"initial_learning_rate": 1, "step_size": 0, "gamma": 1}, "greater than 0"),
        (
            "MultiStepLR",
            {"initial_learning_rate": 1, "gamma": 1, "milestones": [3, 3]},
            "milestones must increase",
        ),
        (
            "PiecewiseConstantLR",
            {"learning_rates": [1.0], "milestones": [3]},
            "one more learning rate",
        ),
        ("SequentialLR", {"schedulers": []}, "schedulers"),
        ("SequentialLR", {"schedulers": [{"A": {}, "B": {}}]}, "mapping {class name: arguments}"),
        ("SequentialLR", {"schedulers": [{"StepLr": {}}]}, r"here.schedulers\[0\].StepLr"),
        ("SequentialLR", {**CHAIN, "milestones": [5, 13]}, r"\[5, 12\]; leave it out"),
    ],
)
def test_bad_schedules_are_refused(name, args, message):
    """An unknown class, a wrong argument or a contradiction is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=message):
        build_schedule(name, args, "here")


def test_every_class_of_the_module_can_be_built_by_name():
    """The registry's names are the class names."""
    assert all(name == kind.__name__ for name, kind in SCHEDULES.items())
    assert len(SCHEDULES) == 12
