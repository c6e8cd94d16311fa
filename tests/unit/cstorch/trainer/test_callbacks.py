"""A training ends where its metric stops improving, and keeps its best checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cstorch.trainer import BestCheckpoint, EarlyStopping
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def stopped_after(stopping: EarlyStopping, values: list[float]) -> int | None:
    """Return the evaluation after which a training ends."""
    trainer: Any = SimpleNamespace(should_stop=False)
    for number, value in enumerate(values, start=1):
        stopping.on_evaluation(trainer, {"val_loss": value})
        if trainer.should_stop:
            return number
    return None


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([3.0, 2.0, 1.0, 0.5], None),
        ([3.0, 3.0, 3.0], 3),
        ([3.0, 2.0, 2.5, 1.0, 1.5, 1.2], 6),
        ([math.nan, math.nan], 2),
    ],
)
def test_training_ends_after_evaluations_in_vain(values: list[float], number: int | None) -> None:
    assert stopped_after(EarlyStopping(patience=2), values) == number


def test_largest_value_may_be_best() -> None:
    assert stopped_after(EarlyStopping(patience=1, mode="max"), [1.0, 2.0, 1.5]) == 3
    assert stopped_after(EarlyStopping(patience=1, min_delta=0.5), [1.0, 0.8]) == 2


def test_checkpoint_of_the_best_step_is_kept(tmp_path: Path) -> None:
    saved: list[Path] = []
    config = SimpleNamespace(model_dir=tmp_path, fast_dev_run=False)
    trainer: Any = SimpleNamespace(config=config, save_checkpoint=saved.append)
    best = BestCheckpoint("accuracy", mode="max")
    for value in (0.5, 0.7, 0.6):
        best.on_evaluation(trainer, {"accuracy": value})
    assert saved == [tmp_path / "best.mdl"] * 2
    assert best.path == tmp_path / "best.mdl"


def test_unknown_metric_and_mode_are_refused() -> None:
    with raises(ConfigError, "unknown-metric") as caught:
        stopped_after(EarlyStopping("val_los"), [1.0])
    assert "val_loss" in str(caught.value)
    with raises(ConfigError, "not-one-of"):
        BestCheckpoint(mode="least")  # type: ignore[arg-type]
