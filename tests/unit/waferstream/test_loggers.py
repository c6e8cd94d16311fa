"""Loggers by import path get the losses of a run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.errors import raises
from tests.support.tiny_run import run_here, write_run
from waferstream.loggers import TRAIN_LOSS, MlflowLogger, WandbLogger
from wsc.core.errors import ConfigError


def test_csv_logger_writes_the_losses_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "losses.csv"
    entry = {"class": "waferstream.loggers:CsvLogger", "path": str(path)}
    loop = {"max_steps": 2, "eval_frequency": 0}
    flags = write_run(
        tmp_path, init__callbacks=[entry], init__loop=loop, init__logging={"log_steps": 1}
    )
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["step"], row["name"]) for row in rows] == [
        ("1", TRAIN_LOSS), ("2", TRAIN_LOSS),
    ]  # fmt: skip
    assert f"Loss={float(rows[1]['value']):.5f}" in out


class Log:
    """A stand-in for wandb's run and for the module mlflow; it notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.told.append((name, given, named))


def test_wandb_logger_logs_offline_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    run, started = Log(), []

    def init(**options: Any) -> Log:
        started.append(options)
        return run

    wandb = ModuleType("wandb")
    wandb.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logger = WandbLogger("mine", tags=["a"])
    logger.log(3, TRAIN_LOSS, 0.5)
    logger.on_fit_end(None, None)
    assert started == [{"project": "mine", "mode": "offline", "tags": ["a"]}]
    assert run.told == [("log", ({TRAIN_LOSS: 0.5},), {"step": 3}), ("finish", (), {})]


def test_mlflow_logger_logs_to_its_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Log()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    logger = MlflowLogger("mine", uri="file:runs")
    logger.log(3, TRAIN_LOSS, 0.5)
    logger.on_fit_end(None, None)
    names = [name for name, _, _ in mlflow.told]
    assert names == ["set_tracking_uri", "set_experiment", "start_run", "log_metric", "end_run"]
    assert mlflow.told[3] == ("log_metric", (TRAIN_LOSS, 0.5), {"step": 3})


def test_logger_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with raises(ConfigError, "package-missing"):
        WandbLogger("mine")
