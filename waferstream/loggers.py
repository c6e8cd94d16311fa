"""Loggers that a params file names by import path: CSV, Weights & Biases, MLflow.

callbacks:
- class: waferstream.loggers:CsvLogger
  path: losses.csv
- class: waferstream.loggers:WandbLogger   # pip install wandb
  project: my-project
- class: waferstream.loggers:MlflowLogger  # pip install mlflow
  experiment: my-experiment

They log the loss of every training step. Event files for TensorBoard are always written, and hold
evaluations, too.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any

import cstorch
from wsc.core.errors import ConfigError

TRAIN_LOSS = "train/loss"


class Logger(ABC):
    """A callback that logs the losses of training; a subclass says where to."""

    def __init__(self) -> None:
        self._first_step = 0

    @abstractmethod
    def log(self, step: int, name: str, value: float) -> None:
        """Log a number of a step."""

    def close(self) -> None:  # noqa: B027  (most have nothing to end)
        """End the log, after training."""

    def on_train_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:  # later, steps may be pending, and the count of steps behind
            self._first_step = trainer.global_step + 1

    def on_train_batch_end(
        self, trainer: Any, model: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._trained(outputs["loss"], self._first_step + batch_idx)

    def on_fit_end(self, trainer: Any, loop: Any) -> None:
        self.close()

    @cstorch.step_closure
    def _trained(self, loss: Any, step: int) -> None:
        self.log(step, TRAIN_LOSS, loss.item())


class CsvLogger(Logger):
    """Logger to a file with the columns step, name and value; a later run appends to it."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)
        if not self._path.exists():
            self._write("step", "name", "value")

    def log(self, step: int, name: str, value: float) -> None:
        self._write(step, name, value)

    def _write(self, *row: object) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(row)


class WandbLogger(Logger):
    """Logger to Weights & Biases: to a local folder, which ``wandb sync`` uploads, by default.

    Further arguments are those of ``wandb.init``.
    """

    def __init__(self, project: str, mode: str = "offline", **options: Any) -> None:
        super().__init__()
        self._run = _package("wandb").init(project=project, mode=mode, **options)

    def log(self, step: int, name: str, value: float) -> None:
        self._run.log({name: value}, step=step)

    def close(self) -> None:
        self._run.finish()


class MlflowLogger(Logger):
    """Logger to MLflow: to a local folder or to the server of ``uri``."""

    def __init__(
        self, experiment: str, uri: str | None = None, run_name: str | None = None
    ) -> None:
        super().__init__()
        self._mlflow = _package("mlflow")
        if uri is not None:
            self._mlflow.set_tracking_uri(uri)
        self._mlflow.set_experiment(experiment)
        self._mlflow.start_run(run_name=run_name)

    def log(self, step: int, name: str, value: float) -> None:
        self._mlflow.log_metric(name, value, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"the package {name} must be installed for its logger",
            code="package-missing",
            where="trainer.init.callbacks",
            value=error,
            remedy=f"pip install {name}",
        ) from error
