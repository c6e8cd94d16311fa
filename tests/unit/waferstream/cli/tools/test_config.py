"""``waferstream config``: files are copied, checked, converted, compared and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.host.tools import rows, tool
from tests.support.runs.tiny_run import TINY
from waferstream.config.phases import load_params

LEGACY = {
    "train_input": {"data_processor": "DummyDataProcessor", "batch_size": 8},
    "model": {"name": "gpt2", "hidden_size": 64, "num_heads": 2},
    "optimizer": {"optimizer_type": "AdamW", "learning_rate": 0.01},
    "runconfig": {"max_steps": 10},
}


def written(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(data))
    return path


def test_pull_copies_a_params_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tool(capsys, "config", "pull", "gpt2_small", "-o", tmp_path)
    assert load_params(Path(out.strip())).trainer.init.model.name == "gpt2"
    err = tool(capsys, "config", "pull", "gpt2_small", "-o", tmp_path, code=1)
    assert "[file-exists]" in err
    assert "[unknown-variant]" in tool(capsys, "config", "pull", "gpt2_smal", code=1)


def test_validate_checks_the_keys_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = written(tmp_path / "params.yaml", TINY)
    assert "is valid" in tool(capsys, "config", "validate", params)
    model = {**TINY["trainer"]["init"]["model"], "hidden_sise": 8}
    wrong = {"trainer": {**TINY["trainer"], "init": {**TINY["trainer"]["init"], "model": model}}}
    written(params, wrong)
    assert "[unknown-key]" in tool(capsys, "config", "validate", params, code=1)


def test_convert_legacy_writes_the_trainer_layout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy = written(tmp_path / "legacy.yaml", LEGACY)
    new = tmp_path / "new.yaml"
    tool(capsys, "config", "convert_legacy", legacy, "-o", new)
    assert "trainer" in yaml.safe_load(new.read_text())
    assert load_params(new) == load_params(legacy)
    assert tool(capsys, "config", "diff", legacy, new) == ""
    err = tool(capsys, "config", "convert_legacy", new, "-o", tmp_path / "again.yaml", code=1)
    assert "[not-legacy]" in err


def test_diff_compares_with_defaults_filled_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that states its default is no difference."""
    stated = {**LEGACY, "runconfig": {"max_steps": 20, "num_csx": 1}}
    left = written(tmp_path / "left.yaml", LEGACY)
    right = written(tmp_path / "right.yaml", stated)
    lines = tool(capsys, "config", "diff", left, right, code=1)
    assert lines == "~ trainer.init.loop.max_steps: 10 -> 20\n"
    assert tool(capsys, "config", "diff", left, right, "-v0", code=1) == (
        "~ trainer.init.loop.max_steps\n"
    )


def test_stats_counts_the_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = written(tmp_path / "params.yaml", TINY)
    found = rows(capsys, "config", "stats", params, "--order_by=parameters", "--descending")
    *parameters, total = found
    counts = [row["parameters"] for row in parameters]
    assert counts == sorted(counts, reverse=True)
    assert total["parameters"] == sum(counts)
    err = tool(capsys, "config", "stats", params, "--order_by=size", code=1)
    assert "[unknown-column]" in err


def test_diff_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = written(tmp_path / "left.yaml", TINY)
    init = {**TINY["trainer"]["init"], "seed": 7}
    right = written(tmp_path / "right.yaml", {"trainer": {**TINY["trainer"], "init": init}})
    out = tool(capsys, "config", "diff", left, right, "--json", code=1)
    assert json.loads(out) == [{"key": "trainer.init.seed", "left": 0, "right": 7}]
