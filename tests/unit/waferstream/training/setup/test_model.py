"""The optimizer of a run says which of its values nothing reads."""

import logging
from typing import Any

import pytest

from tests.support.runs.tiny_training import GPT, init_config
from waferstream.training.setup.model import make_optimizer
from waferstream.workload.models import build_model

DECAY: dict[str, Any] = {
    "initial_learning_rate": 0.1,
    "end_learning_rate": 0.01,
    "total_iters": 4,
}


@pytest.mark.parametrize(
    ("lr", "tags", "is_reported"), [(0.5, None, True), (None, None, False), (0.5, ["decay"], False)]
)
def test_rate_beside_a_scheduler_is_reported(
    caplog: pytest.LogCaptureFixture, lr: float | None, tags: list[str] | None, is_reported: bool
) -> None:
    """Unless the scheduler is for some parameters alone, whose rate it sets."""
    scheduler = {**DECAY, **({"param_group_tags": tags} if tags else {})}
    optimizer = {"AdamW": {} if lr is None else {"lr": lr}}
    init = init_config(optimizer=optimizer, schedulers=[{"LinearLR": scheduler}])
    with caplog.at_level(logging.WARNING):
        make_optimizer(init, build_model(GPT, seed=0))
    assert ("LinearLR sets the learning rate of every step" in caplog.text) is is_reported
