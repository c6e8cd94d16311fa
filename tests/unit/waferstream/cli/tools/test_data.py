"""``waferstream data_processor``: the catalogue, and the rate of a loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.host.tools import fields, rows, tool
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main
from waferstream.workload.data import DATA_PROCESSORS


def test_catalogue_of_data_processors_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert {row["name"] for row in rows(capsys, "data_processor", "list")} == set(DATA_PROCESSORS)
    info = fields(capsys, "data_processor", "info", "DummyDataProcessor")
    assert info["required"] == "data_processor, batch_size"
    described = rows(capsys, "data_processor", "describe", "DummyDataProcessor")
    assert {row["key"]: row["default"] for row in described}["vocab_size"] == 50257
    err = tool(capsys, "data_processor", "describe", "DumyDataProcessor", code=1)
    assert "[unknown-data-processor]" in err


def test_benchmark_reads_every_loader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    params = tmp_path / "params.yaml"
    flags = ("--steps_per_epoch=3", "--num_epochs=2", "--sampling_frequency=2")
    found = rows(capsys, "data_processor", "benchmark", params, *flags)
    train = [row for row in found if row["loader"] == "trainer.fit.train_dataloader"]
    assert [(row["epoch"], row["steps"]) for row in train] == [(0, 2), (0, 1), (1, 2), (1, 1)]
    assert len(found) == 2 * len(train)
    assert all(row["samples/s"] > row["batches/s"] > 0 for row in found)
    with pytest.raises(SystemExit) as ended:
        main(["data_processor", "benchmark", f"{params}", "--num_epochs=0"])
    assert ended.value.code == 2


OWN_LOADERS = """
import torch

def endless(batch_size):
    while True:
        yield {"x": torch.zeros(batch_size, 3)}

def finite(batch_size):
    return [torch.zeros(batch_size, 3)] * 4
"""


def test_benchmark_reads_a_loader_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_loaders.py").write_text(OWN_LOADERS)
    write_run(
        tmp_path,
        fit__train_dataloader={"class": "own_loaders:finite", "batch_size": 2},
        fit__val_dataloader={"class": "own_loaders:endless", "batch_size": 2},
    )
    words = ("data_processor", "benchmark", tmp_path / "params.yaml", "--num_epochs=2")
    err = tool(capsys, *words, code=1)
    assert "[loader-without-length]" in err
    found = rows(capsys, *words, "--steps_per_epoch=5")
    assert [(row["epoch"], row["steps"]) for row in found] == [(0, 4), (1, 4), (0, 5), (1, 5)]
