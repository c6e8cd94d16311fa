"""``waferstream config schema`` and ``explain`` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.host.tools import tool

ROOT = Path(__file__).resolve().parents[5]


def test_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(tool(capsys, "config", "schema", "cluster"))["title"] == "cluster.yaml"


def test_explain_prints_the_value_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    out = tool(capsys, "config", "explain", "loop.max_steps", ROOT / "params.yaml", "--json")
    (row,) = json.loads(out)
    assert (row["value"], row["default"], row["unit"]) == (120, "null", "steps")


def test_explain_prints_values_of_flags_with_dots(capsys: pytest.CaptureFixture[str]) -> None:
    key = "ScopedTrainFlags.csx.performance.micro_batch_size"
    out = tool(capsys, "config", "explain", key, ROOT / "params.yaml", "--json")
    assert json.loads(out)[0]["value"] == 2


def test_explain_reads_the_legacy_layout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of its sections are there."""
    file = tmp_path / "legacy.yaml"
    file.write_text("model: {name: gpt2}\ntrain_input: {data_processor: A, batch_size: 8}\n")
    key = "train_dataloader.batch_size"
    out = tool(capsys, "config", "explain", key, file, "--json")
    assert json.loads(out)[0]["value"] == 8


def test_explain_refuses_an_unknown_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[unknown-key]" in tool(capsys, "config", "explain", "max_stepz", code=1)
