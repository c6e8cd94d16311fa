"""The small runs of the vendor's Model Zoo: params files and data. The runs need a checkout."""

from __future__ import annotations

from pathlib import Path

import h5py
import yaml

from scripts.model_zoo import FAMILIES, LENGTH, VOCABULARY, Outcome, small_params, write_tokens


def test_params_are_those_of_the_checkout_at_a_small_size(tmp_path: Path) -> None:
    name, _ = FAMILIES["gpt2"]
    source = tmp_path / "src" / "cerebras" / "modelzoo" / "models" / "nlp" / name
    source.parent.mkdir(parents=True)
    init = {
        "model": {"name": "gpt3", "hidden_size": 768, "nonlinearity": "gelu"},
        "optimizer": {"AdamW": {"eps": 1e-8}},
        "precision": {"enabled": True},
    }
    source.write_text(yaml.safe_dump({"trainer": {"init": init, "validate": {}}}))
    trainer = small_params(tmp_path, "gpt2", tmp_path / "out")["trainer"]
    model = trainer["init"]["model"]
    assert (model["name"], model["hidden_size"], model["nonlinearity"]) == ("gpt2", 32, "gelu")
    assert trainer["init"]["optimizer"] == init["optimizer"]
    assert trainer["fit"]["train_dataloader"]["data_dir"] == str(tmp_path / "out" / "data")
    assert "validate" not in trainer


def test_labels_follow_the_tokens(tmp_path: Path) -> None:
    write_tokens(tmp_path / "data" / "tokens.h5")
    with h5py.File(tmp_path / "data" / "tokens.h5") as file:
        rows = file["data"][()]
        assert file.attrs["n_examples"] == len(rows)
    assert rows.shape[1:] == (3, LENGTH)
    assert (rows[:, 0, 1:] == rows[:, 2, :-1]).all()
    assert rows.max() < VOCABULARY


def test_a_run_is_good_if_its_loss_falls() -> None:
    assert Outcome(first=4.0, last=3.0, resumed=2.5, checkpoint="checkpoint_9.mdl").is_good
    assert not Outcome(first=4.0, last=4.5, resumed=2.5, checkpoint="checkpoint_9.mdl").is_good
    assert not Outcome(first=4.0, last=3.0, resumed=None, checkpoint=None).is_good
