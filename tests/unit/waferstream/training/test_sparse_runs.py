"""Runs whose params file has the section ``sparsity``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cstorch
from tests.support.files.event_files import scalars
from tests.support.runs.tiny_run import digest_of, run_here, write_run

RIGL = {
    "algorithm": "RigL",
    "sparsity": 0.75,
    "update": {"freq": 2},
    "param_filter": ["*linear_layer.weight"],
}
WHOLE: dict[str, Any] = {"init__loop": {"max_steps": 4}, "init__sparsity": RIGL}
TRAIN = "--mode=train"


def test_sparse_run_is_resumed_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps and two more are four; the callback logs the share of zeros of each weight."""
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    code, out, err = run_here([*write_run(tmp_path / "whole", **WHOLE), TRAIN], capsys)
    assert code == 0, err
    logged = {**WHOLE, "init__callbacks": [{"LogSparsity": {}}], "init__checkpoint": {"steps": 2}}
    half = {**logged, "init__loop": {"max_steps": 2}}
    assert run_here([*write_run(tmp_path / "parts", **half), TRAIN], capsys)[0] == 0
    masks = cstorch.load(tmp_path / "parts" / "model_dir" / "checkpoint_2.mdl")["sparsity"]
    assert {float(mask.float().mean()) for mask in masks.values()} == {0.25}
    assert all(".feed_forward." in name for name in masks)
    code, again, err = run_here([*write_run(tmp_path / "parts", **logged), TRAIN], capsys)
    assert code == 0, err
    assert digest_of(again) == digest_of(out)
    events = (tmp_path / "parts").rglob("events.out.tfevents.*")
    found = [entry for file in events for entry in scalars(file) if entry[0].startswith("sparsity")]
    assert len({name for name, _, _ in found}) == len(masks) + 1
    assert {value for _, value, _ in found} == {0.75}
    assert max(step for _, _, step in found) == 4


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"update": {"freq": 100}}, "sparsity-schedule-beyond-run"),
        ({"update": {"steps": [1, 5]}}, "sparsity-schedule-beyond-run"),
        ({"param_filter": "*lin_layer.weight"}, "sparsity-filter-matches-nothing"),
        ({"sparsity": 75}, "out-of-range"),
    ],
)
def test_wrong_sparsity_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], code: str
) -> None:
    flags = write_run(tmp_path, **{**WHOLE, "init__sparsity": {**RIGL, **changes}})
    found, out, err = run_here(flags, capsys)
    assert found == 1
    assert f"[{code}]" in err
    assert "Beginning appliance run" not in out
