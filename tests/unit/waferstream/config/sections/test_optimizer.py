"""Optimizers and schedulers by name, with the vendor's defaults, written and read again."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import Tag

from tests.support.errors import raises
from tests.support.runs.params_sections import init_section
from waferstream.config.sections.callbacks import CallbackConfig, LoggerConfig, UserCallback
from waferstream.config.sections.optimizer import OPTIMIZERS, OptimizerConfig, SchedulerConfig
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.composed import SequentialLR
from waferstream.core.hyper_schedules.decays import ConstantLR, CosineDecayLR, LinearLR

WARM_UP: dict[str, Any] = {
    "initial_learning_rate": 0.0,
    "end_learning_rate": 1.0,
    "total_iters": 10,
}
DECAY: dict[str, Any] = {"initial_learning_rate": 1.0, "end_learning_rate": 0.1, "total_iters": 90}


def test_a_class_is_read_with_its_defaults() -> None:
    """Absent arguments take the vendor's defaults; lists become tuples."""
    optimizer = init_section(optimizer={"AdamW": {"betas": [0.9, 0.95], "lr": 0.1}}).optimizer
    assert optimizer == OPTIMIZERS["AdamW"].model_validate({"betas": (0.9, 0.95), "lr": 0.1})
    assert optimizer is not None
    assert optimizer.arguments()["eps"] == 1e-6
    lion = init_section(optimizer={"Lion": None}).optimizer
    assert lion == OPTIMIZERS["Lion"].model_validate({"lr": 1e-4, "betas": (0.9, 0.99)})


def test_learning_rate_is_another_name_for_lr() -> None:
    """Both spellings set the same argument, and it is written back as lr."""
    section = init_section(optimizer={"SGD": {"learning_rate": 0.5}})
    assert section.optimizer == init_section(optimizer={"SGD": {"lr": 0.5}}).optimizer
    assert section.dump()["optimizer"]["SGD"]["lr"] == 0.5


def test_a_rate_must_come_from_somewhere() -> None:
    """SGD has no default rate: without lr and without a scheduler it is refused."""
    with pytest.raises(ConfigError) as caught:
        init_section(optimizer={"SGD": {}})
    assert "SGD needs lr" in str(caught.value)
    scheduled = init_section(optimizer={"SGD": {}}, schedulers={"ConstantLR": {"learning_rate": 1}})
    assert scheduled.optimizer is not None
    assert scheduled.optimizer.lr is None
    init_section(optimizer={"Adafactor": {"relative_step": True}})


@pytest.mark.parametrize(
    ("optimizer", "code", "word"),
    [
        ({"AdamWW": {}}, "unknown-class", "'AdamW'"),
        ({"AdamW": {"bettas": [0.9, 0.95]}}, "unknown-key", "'betas'"),
        ({"AdamW": {"betas": [0.9, 1.0]}}, "out-of-range", "optimizer.AdamW.betas"),
        ({"AdamW": {"betas": [0.9]}}, "missing-key", "optimizer.AdamW.betas"),
        ({"AdamW": {"lr": -1}}, "out-of-range", "optimizer.AdamW.lr"),
        ({"AdamW": {"lr": float("nan")}}, "out-of-range", "optimizer.AdamW.lr"),
        ({"AdamW": {}, "SGD": {}}, "missing-class", "SGD, Adam, AdamW"),
        ("AdamW", "missing-class", "SGD, Adam, AdamW"),
        ({"AdamW": 3}, "wrong-type", "optimizer.AdamW"),
    ],
)
def test_wrong_optimizer_section_is_refused(optimizer: Any, code: str, word: str) -> None:
    """Every error names its key, or the known classes."""
    with raises(ConfigError, code) as caught:
        init_section(optimizer=optimizer)
    assert word in str(caught.value)


@pytest.mark.parametrize("family", [OptimizerConfig, CallbackConfig, LoggerConfig])
def test_tag_of_every_class_is_its_name(family: Any) -> None:
    """The tag by which a class is found in the file is the name of the class."""
    union, *_ = get_args(family)
    for member in get_args(union):
        kind, *_, tag = get_args(member)
        assert tag == Tag("class" if kind is UserCallback else kind.__name__)


def test_names_and_keys_of_stock_files_are_read() -> None:
    """A name in another case, and the bias correction that Adam always does."""
    adam = init_section(optimizer={"adam": {"lr": 1.0, "correct_bias": True}}).optimizer
    assert adam == init_section(optimizer={"Adam": {"lr": 1.0}}).optimizer
    assert init_section(optimizer={"AdaFactor": {"lr": 1.0}}).optimizer == OPTIMIZERS["Adafactor"](
        lr=1.0
    )
    with raises(ConfigError, "unknown-key"):
        init_section(optimizer={"adam": {"lr": 1.0, "correct_bias": False}})


def test_every_optimizer_has_a_section() -> None:
    """No optimizer is declared and forgotten in the union."""
    for name, kind in OPTIMIZERS.items():
        assert type(init_section(optimizer={name: {"lr": 1.0}}).optimizer) is kind


def test_sequential_section_has_its_milestones() -> None:
    """Absent milestones are the running sums of total_iters."""
    parts = [{"LinearLR": WARM_UP}, {"CosineDecayLR": DECAY}]
    (config,) = init_section(schedulers=[{"SequentialLR": {"schedulers": parts}}]).schedulers
    assert config.schedule == SequentialLR(
        schedulers=(LinearLR(**WARM_UP), CosineDecayLR(**DECAY)), milestones=(10,)
    )


def test_single_scheduler_needs_no_list() -> None:
    """One mapping means a list of one; no mapping means an empty list."""
    assert init_section(schedulers={"ConstantLR": {"learning_rate": 1}}).schedulers == (
        SchedulerConfig("lr", ConstantLR(learning_rate=1)),
    )
    assert init_section(schedulers=None).schedulers == ()


def test_schedulers_section_is_read_as_written() -> None:
    """Nested classes and milestones survive being written."""
    parts = [{"LinearLR": WARM_UP}, {"ConstantLR": {"learning_rate": 0.5}}]
    section = init_section(schedulers=[{"SequentialLR": {"schedulers": parts}}])
    written = section.dump()["schedulers"]
    assert written[0]["SequentialLR"]["milestones"] == [10]
    assert written[0]["SequentialLR"]["schedulers"][1] == {"ConstantLR": {"learning_rate": 0.5}}
    assert init_section(schedulers=written) == section


WD = {"LinearWD": {"initial_val": 0.1, "end_val": 0.0, "total_iters": 10}}


def test_learning_rate_and_weight_decay_are_scheduled_in_one_run() -> None:
    """A weight-decay scheduler is for the decayed parameters unless it says otherwise."""
    section = init_section(schedulers=[{"LinearLR": WARM_UP}, WD])
    assert [(each.key, each.name) for each in section.schedulers] == [
        ("lr", "LinearLR"),
        ("weight_decay", "LinearWD"),
    ]
    assert [each.param_group_tags for each in section.schedulers] == [None, ("decay",)]
    assert init_section(schedulers=section.dump()["schedulers"]) == section


def test_tags_let_two_schedulers_set_one_value() -> None:
    """Each has its groups: matrices are tagged decay, all other parameters no_decay."""
    rates = [
        {"ConstantLR": {"learning_rate": 1, "param_group_tags": tag}}
        for tag in ("decay", ["no_decay"])
    ]
    assert [s.param_group_tags for s in init_section(schedulers=rates).schedulers] == [
        ("decay",),
        ("no_decay",),
    ]


def test_tags_of_the_optimizer_let_schedulers_set_values() -> None:
    """By globs of names; a tag that no entry has is refused."""
    optimizer = {"AdamW": {"params": [{"params": "*.mlp.*", "tag": "mlp"}]}}
    rate = {"ConstantLR": {"learning_rate": 1, "param_group_tags": ["mlp", "no_decay"]}}
    section = init_section(optimizer=optimizer, schedulers=[rate])
    assert section.optimizer is not None
    assert section.optimizer.tags == {"decay", "no_decay", "mlp"}
    assert "params" not in section.optimizer.arguments()
    (tagged,) = section.optimizer.params or ()
    assert tagged.selects("a", "heads.0.mlp.weight")
    assert not tagged.selects("mlp.weight")
    assert init_section(**section.dump()) == section
    with raises(ConfigError, "unknown-tag") as caught:
        init_section(optimizer={"AdamW": {}}, schedulers=[rate])
    assert "schedulers[0].ConstantLR" in str(caught.value.where)


def test_scheduled_weight_decay_gives_no_learning_rate() -> None:
    """SGD still needs lr."""
    with pytest.raises(ConfigError) as caught:
        init_section(optimizer={"SGD": {}}, schedulers=[WD])
    assert "SGD needs lr" in str(caught.value)


RATE = {"learning_rate": 1}


@pytest.mark.parametrize(
    ("schedulers", "code", "word"),
    [
        ([{"LinarLR": WARM_UP}], "unknown-schedule", "'LinearLR'"),
        ([{"LinearLR": {**WARM_UP, "end_rate": 1}}], "unknown-key", "'end_rate'"),
        ([{"LinearLR": None}], "not-a-scheduler", "trainer.init.schedulers[0]"),
        (["LinearLR"], "not-a-scheduler", "trainer.init.schedulers[0]"),
        ([{1: {}}], "not-a-scheduler", "trainer.init.schedulers[0]"),
        ([{"ConstantLR": {**RATE, "param_group_tags": 5}}], "unknown-tag", "no_decay"),
        ([{"SequentialLR": {"schedulers": [{"LinearLR": 5}]}}], "not-a-schedule", "LinearLR"),
        (3, "wrong-type", "'schedulers'"),
        ([{"ConstantLR": {"learning_rate": 1}}] * 2, "not-allowed", "SequentialLR"),
        ([WD] * 2, "not-allowed", "SequentialLR"),
        (
            [{"ConstantLR": {"learning_rate": 1, "param_group_tags": ["norms"]}}],
            "unknown-tag",
            "no_decay",
        ),
        (
            [{"SequentialLR": {"schedulers": [{"LinearLR": WARM_UP}] * 2, "milestones": [9]}}],
            "not-allowed",
            "[10]",
        ),
    ],
)
def test_wrong_schedulers_section_is_refused(schedulers: Any, code: str, word: str) -> None:
    """Every error names its place, or the known classes."""
    with raises(ConfigError, code) as caught:
        init_section(schedulers=schedulers)
    assert word in str(caught.value)
    assert "f.yaml" in str(caught.value.where)
