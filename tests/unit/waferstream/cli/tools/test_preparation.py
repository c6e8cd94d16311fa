"""``waferstream data``: texts become a dataset, which can be looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.host.tools import rows, tool


def test_texts_become_a_dataset_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "b.txt").write_text("another")
    out = tmp_path / "out"
    words = ("data", "preprocess", f"{tmp_path}/*.txt", "--output_dir", out, "--processes=1")
    text = tool(capsys, *words, "--max_sequence_length=16")
    assert "2 documents in 1 sequence of 16" in text
    assert "use_vsl: true" in text
    (found,) = rows(capsys, *words, "--max_sequence_length=16")
    assert (found["documents"], found["tokens"], found["cost_of_padding"]) == (2, 13, 2.0)
    shown = rows(capsys, "data", "view", out)
    assert [row["text"].rstrip("\0") for row in shown] == ["a text", "another", ""]
    tokens = rows(capsys, "data", "view", out, "--tokens")
    assert [row["position_ids"] for row in tokens[:8]] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert "a text" in tool(capsys, "data", "view", out, "-P")


def test_keys_are_those_of_a_file_below_those_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a text")
    config = tmp_path / "recipe.yaml"
    keys = {"sources": [f"{tmp_path}/a.txt"], "output_dir": f"{tmp_path}/out", "layout": "corpus"}
    config.write_text(json.dumps(keys))
    words = ("data", "preprocess", "--config", config)
    (found,) = rows(capsys, *words, "--layout=padded", "--max_sequence_length=8")
    assert (found["sequences"], found["length"]) == (1, 8)
    assert "[not-one-of]" in tool(capsys, *words, "--layout=paded", code=1)
    assert "[missing-key]" in tool(capsys, "data", "preprocess", "a.txt", code=1)
