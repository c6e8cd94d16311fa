"""Loggers by import path get the losses of a run."""

from __future__ import annotations

import csv
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from appliance.faults.strike import full_disk
from tests.support.errors import raises
from tests.support.files.event_files import scalars
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.errors import ConfigError
from waferstream.loggers import CsvLogger, MlflowLogger, WandbLogger
from waferstream.training.observers.observer import EvaluationLog

EVALUATED = {"eval/loss": 0.5, "eval/accuracy": 0.25}


def test_csv_logger_writes_training_evaluations_and_attribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the file has is what the event file has, under the name of the run."""
    path = tmp_path / "losses.csv"
    entry = {"CsvLogger": {"path": str(path)}}
    loop = {"max_steps": 2, "eval_frequency": 2, "eval_steps": 1}
    flags = write_run(
        tmp_path,
        init__loggers=[
            entry,
            {"TensorBoardLogger": {"summary_dir": str(tmp_path), "run_name": "mine"}},
        ],
        init__loop=loop,
        init__logging={"log_steps": 2},
    )
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    rows = list(csv.DictReader(path.read_text().splitlines()))
    numbers = {(row["name"], int(row["step"])): float(row["value"]) for row in rows}
    assert f"Avg Eval Loss: {numbers['eval/loss', 2]:.5f}" in out
    assert ("eval/lm_perplexity", 2) in numbers
    causes = [value for (name, step), value in numbers.items() if _is_cause(name) and step == 2]
    assert sum(causes) == pytest.approx(1)
    (events,) = (tmp_path / "mine").iterdir()
    written = {(name, step): value for name, value, step in scalars(events)}
    assert numbers == pytest.approx(written, rel=1e-6)  # events are fp32


def _is_cause(name: str) -> bool:
    return name.startswith("attribution/") and name != "attribution/step_s"


@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_wandb_logger_logs_offline_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library itself writes a folder that can be uploaded."""
    monkeypatch.chdir(tmp_path)
    logger = WandbLogger("mine", tags=["a"])
    logger.evaluated(EvaluationLog(3, 1, 0.5, {"eval/accuracy": 0.25}, 1.0))
    logger.close()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (written,) = folder.glob("*.wandb")
    deadline_s = time.monotonic() + 20
    while b"eval/accuracy" not in written.read_bytes():  # by a process of the library
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_mlflow_logger_logs_to_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library itself has the numbers, by default in a database of this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    logger = MlflowLogger("mine")
    logger.evaluated(EvaluationLog(3, 1, 0.5, {"eval/accuracy": 0.25}, 1.0))
    logger.close()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        rows = database.execute("select key, value, step from metrics").fetchall()
    assert sorted(rows) == [("eval/accuracy", 0.25, 3), ("eval/loss", 0.5, 3)]


def test_logger_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with raises(ConfigError, "package-missing"):
        WandbLogger("mine")


def test_csv_logger_names_its_file_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    logger = CsvLogger(str(path))
    with full_disk(path.stat().st_size), pytest.raises(OSError, match=path.name) as caught:
        logger.log(1, {"loss": 0.5})
    assert caught.value.filename == str(path)
