"""What transformers reads of a training, beside its last checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.runs.tiny_run import run_here, write_run
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.config.phases import load_params
from waferstream.training.checkpoints import export
from waferstream.workload.models import build_model
from waferstream.workload.special_tokens import SPECIAL_TOKENS

IDS = {"bos_token_id": 3, "eos_token_id": [4, 5]}


def _run(folder: Path, **keys: Any) -> list[str]:
    short: dict[str, Any] = {"init__loop": {"max_steps": 1}}
    return [*write_run(folder, **short, **keys), "--mode=train"]


def test_transformers_reads_the_folder_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the weights of the last checkpoint, and so it does when the run goes on."""
    from transformers import AutoModelForCausalLM

    flags, folder = _run(tmp_path), tmp_path / "model_dir"
    for step in (1, 2):
        code, _, err = run_here([*flags, f"--max_steps={step}"], capsys)
        assert code == 0, err
        model = AutoModelForCausalLM.from_pretrained(folder)
        trained = Reader(folder / f"checkpoint_{step}.mdl")["model.embedding.weight"]
        assert torch.equal(model.transformer.wte.weight, torch.from_numpy(trained))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of initial weights, converted from a model with special tokens."""
    write_run(tmp_path)
    model = build_model(_init(tmp_path).model.dump(), seed=1)
    path = tmp_path / "checkpoint_7.mdl"
    append_tensors(path, MODEL, {name: w.numpy() for name, w in model.state_dict().items()})
    write_metadata(path, {"global_step": 7, SPECIAL_TOKENS: IDS})
    return path


def _init(folder: Path) -> Any:
    return load_params(folder / "params.yaml").trainer.init


def test_ids_of_special_tokens_stay(checkpoint: Path) -> None:
    export.export_checkpoint(checkpoint, _init(checkpoint.parent))
    written = json.loads((checkpoint.parent / "config.json").read_text())
    assert {key: written[key] for key in IDS} == IDS


def test_files_of_another_program_stay(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    theirs = checkpoint.with_name("model.safetensors")
    theirs.write_bytes(b"another program's")
    export.export_checkpoint(checkpoint, _init(checkpoint.parent))
    assert theirs.read_bytes() == b"another program's"
    assert "[file-exists]" in caplog.text


def test_large_weights_are_exported_where_asked_for(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_MOST_BYTES", 100)
    init, target = _init(checkpoint.parent), checkpoint.with_name("model.safetensors")
    for asked, is_there in (("auto", False), (False, False), (True, True)):
        changed = init.checkpoint.model_copy(update={"export": asked})
        export.export_checkpoint(checkpoint, init.model_copy(update={"checkpoint": changed}))
        assert target.exists() is is_there


@pytest.mark.parametrize(
    "keys",
    [
        {"init__model": {"name": "fc_mnist"}},
        {"init__callbacks": [{"Lora": {"lora_params": [{"r": 2}]}}]},
    ],
    ids=["model", "adapters"],
)
def test_what_transformers_lacks_is_told_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any]
) -> None:
    code, _, err = run_here(_run(tmp_path, init__checkpoint={"export": True}, **keys), capsys)
    assert (code, "[model-not-exportable]" in err) == (1, True), err
