"""Loggers of a params file beside event files of TensorBoard: CSV, Weights & Biases, MLflow.

loggers:
- CsvLogger: {path: losses.csv}
- WandbLogger: {project: my-project}        # pip install wandb
- MlflowLogger: {experiment: my-experiment}  # pip install mlflow

They log the loss of every training step; at log steps rates, learning rate and the attribution of
the emulated time; and loss and metrics of every evaluation. Event files for TensorBoard are always
written, and hold the same.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from waferstream.core.errors import ConfigError
from waferstream.host.files import naming
from waferstream.training.observers.logger import Logger


class CsvLogger(Logger):
    """Logger to a file with the columns step, name and value; a later run appends to it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if not self._path.exists():
            self._write([("step", "name", "value")])

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._write([(step, name, value) for name, value in numbers.items()])

    def _write(self, rows: Iterable[Sequence[object]]) -> None:
        with naming(self._path), self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)


class WandbLogger(Logger):
    """Logger to Weights & Biases: to a local folder, which ``wandb sync`` uploads, by default.

    Further arguments are those of ``wandb.init``.
    """

    def __init__(self, project: str, mode: str = "offline", **options: Any) -> None:
        self._run = _package("wandb").init(project=project, mode=mode, **options)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class MlflowLogger(Logger):
    """Logger to MLflow: to the server or database of ``uri``, or of ``$MLFLOW_TRACKING_URI``.

    By default it is ``mlflow.db`` in the working folder, which ``mlflow ui`` shows.
    """

    def __init__(
        self, experiment: str, uri: str | None = None, run_name: str | None = None
    ) -> None:
        self._mlflow = _package("mlflow")
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
        self._mlflow.set_tracking_uri(uri)
        self._mlflow.set_experiment(experiment)
        self._mlflow.start_run(run_name=run_name)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"the package {name} must be installed for its logger",
            code="package-missing",
            where="trainer.init.loggers",
            value=error,
            remedy=f"pip install {name}",
        ) from error
