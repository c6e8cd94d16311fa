"""``waferstream checkpoint prune``: trained models are pruned on their training data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import cstorch
from tests.support.host.tools import tool
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.sparsity.spec import kept_of

FROM_ZEROS = {"init_method": "from_zeros", "param_filter": ["*linear_layer.weight"]}


@pytest.fixture
def flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the flags of a run that goes on from the zeros, with its initial weights beside it."""
    found = write_run(tmp_path, init__sparsity=FROM_ZEROS, init__loop={"max_steps": 2})
    tool(capsys, "model", "init_checkpoint", tmp_path / "params.yaml", "-o", tmp_path / "whole.mdl")
    return found


def weights_in(path: Path) -> dict[str, Any]:
    return {name: weight.clone() for name, weight in cstorch.load(path)["model"].items()}


def test_training_goes_on_from_the_zeros(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights that the section selects are pruned; others, and all zeros, are as they were."""
    params, whole, pruned = (tmp_path / name for name in ("params.yaml", "whole.mdl", "pruned.mdl"))
    words = ("checkpoint", "prune", params, whole, pruned, "--sparsity", 0.7, "--num_batches", 2)
    assert tool(capsys, *words).strip() == str(pruned)
    before, after = weights_in(whole), weights_in(pruned)
    changed = {name for name in before if not before[name].equal(after[name])}
    assert len(changed) == 4
    assert all(".feed_forward." in name for name in changed)
    assert "[file-exists]" in tool(capsys, *words, code=1)
    start = [f"--checkpoint_path={pruned}", "--load_checkpoint_states=model"]
    code, _, err = run_here([*flags, "--mode=train", *start], capsys)
    assert code == 0, err
    trained = weights_in(tmp_path / "model_dir" / "checkpoint_2.mdl")
    for name in changed:
        zeros = after[name] == 0
        assert int((~zeros).sum()) == kept_of(zeros.numel(), 0.7)
        assert zeros.equal(trained[name] == 0)
        assert not trained[name].equal(after[name])


def test_wrong_request_is_refused(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def prune(share: float) -> str:
        words = (tmp_path / "params.yaml", tmp_path / "whole.mdl", tmp_path / "pruned.mdl")
        return tool(capsys, "checkpoint", "prune", *words, "--sparsity", share, code=1)

    assert "[out-of-range]" in prune(1.2)
    section = yaml.safe_load((tmp_path / "params.yaml").read_text())
    fit = section["trainer"].pop("fit")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(section))
    assert "[missing-key]" in prune(0.5)
    section["trainer"]["fit"] = fit
    section["trainer"]["init"]["model"]["filter_size"] += 8
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(section))
    assert "[checkpoint-keys-mismatch]" in prune(0.5)
    assert not (tmp_path / "pruned.mdl").exists()
