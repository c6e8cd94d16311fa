"""Schedulers by name, nested in sequences, written and read again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.params_sections import init_section
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import ConstantLR, CosineDecayLR, LinearLR, SequentialLR

WARM_UP = {"initial_learning_rate": 0.0, "end_learning_rate": 1.0, "total_iters": 10}
DECAY = {"initial_learning_rate": 1.0, "end_learning_rate": 0.1, "total_iters": 90}


def test_a_sequence_is_read_and_finds_its_milestones() -> None:
    """Absent milestones are the running sums of total_iters."""
    parts = [{"LinearLR": WARM_UP}, {"CosineDecayLR": DECAY}]
    (schedule,) = init_section(schedulers=[{"SequentialLR": {"schedulers": parts}}]).schedulers
    assert schedule == SequentialLR(
        schedulers=(LinearLR(**WARM_UP), CosineDecayLR(**DECAY)), milestones=(10,)
    )


def test_a_single_scheduler_needs_no_list() -> None:
    """One mapping stands for a list of one; none at all is an empty list."""
    assert init_section(schedulers={"ConstantLR": {"learning_rate": 1}}).schedulers == (
        ConstantLR(learning_rate=1),
    )
    assert init_section(schedulers=None).schedulers == ()


def test_what_is_written_is_read_again() -> None:
    """Nested classes and milestones survive being written."""
    parts = [{"LinearLR": WARM_UP}, {"ConstantLR": {"learning_rate": 0.5}}]
    section = init_section(schedulers=[{"SequentialLR": {"schedulers": parts}}])
    written = section.dump()["schedulers"]
    assert written[0]["SequentialLR"]["milestones"] == [10]
    assert written[0]["SequentialLR"]["schedulers"][1] == {"ConstantLR": {"learning_rate": 0.5}}
    assert init_section(schedulers=written) == section


@pytest.mark.parametrize(
    ("schedulers", "complaint"),
    [
        ([{"LinarLR": WARM_UP}], "did you mean 'LinearLR'?"),
        ([{"LinearLR": {**WARM_UP, "end_rate": 1}}], "unknown key 'end_rate'"),
        ([{"LinearLR": None}], "trainer.init.schedulers[0]"),
        (["LinearLR"], "trainer.init.schedulers[0]"),
        (3, "'schedulers'"),
        ([{"ConstantLR": {"learning_rate": 1}}] * 2, "SequentialLR"),
        (
            [{"SequentialLR": {"schedulers": [{"LinearLR": WARM_UP}] * 2, "milestones": [9]}}],
            "[10]",
        ),
    ],
)
def test_a_wrong_scheduler_is_explained(schedulers: Any, complaint: str) -> None:
    """Every mistake names its place, or the words that are known."""
    with pytest.raises(ConfigError) as caught:
        init_section(schedulers=schedulers)
    assert complaint in str(caught.value)
    assert "f.yaml" in str(caught.value)
