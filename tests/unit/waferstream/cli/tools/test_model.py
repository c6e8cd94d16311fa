"""``waferstream model``: the catalogue, and initial weights in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.host.tools import fields, rows, tool
from tests.support.runs.tiny_run import TINY, digest_of, write_run
from waferstream.checkpoint.reader import Reader
from waferstream.workload.models import MODELS, build_model


def test_catalogue_of_models_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in rows(capsys, "model", "list")}
    assert set(found) == set(MODELS)
    assert "gpt3_1.3b" in found["gpt3"]["variants"]
    assert fields(capsys, "model", "info", "gptj")["class"].endswith("GptModel")
    keys = {row["key"]: row["default"] for row in rows(capsys, "model", "describe", "gptj")}
    assert keys["rotary_dim"] == 64
    assert keys["residual_dropout_rate"] == 0.1
    assert "[unknown-model]" in tool(capsys, "model", "info", "gtp2", code=1)


def test_catalogue_is_a_table_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = tool(capsys, "model", "list", "-P")
    assert out.splitlines()[0].split() == ["name", "class", "variants"]


def test_init_checkpoint_holds_the_weights_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``waferstream fit`` takes the file."""
    flags = write_run(tmp_path, init__loop={"max_steps": 1}, init__seed=3)
    params = tmp_path / "params.yaml"
    path = Path(tool(capsys, "model", "init_checkpoint", params, "-o", tmp_path).strip())
    reader = Reader(path)
    model = build_model(TINY["trainer"]["init"]["model"], seed=3)
    for name, weight in model.state_dict().items():
        np.testing.assert_array_equal(reader[f"model.{name}"], weight.numpy())
    assert reader.objects == {"global_step": 0, "seed": 3}
    started = [f"--checkpoint_path={path}", "--load_checkpoint_states=model", *flags[1:]]
    out = tool(capsys, "fit", params, *started)
    assert f"Starting from checkpoint {path}, step 0" in out
    assert digest_of(out)
