"""The small runs of the vendor's Model Zoo: params files and data. The runs need a checkout."""

from __future__ import annotations

import csv
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml

from scripts.model_zoo.__main__ import FAMILIES, Outcome, small_params
from scripts.model_zoo.data import (
    LATENT,
    LENGTH,
    SAMPLES,
    VOCABULARY,
    write_bert,
    write_gpt,
    write_images,
    write_latents,
    write_t5,
)


def test_params_are_those_of_the_checkout_at_a_small_size(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "cerebras" / "modelzoo" / "models"
    source = folder / FAMILIES["dit"].params
    source.parent.mkdir(parents=True)
    init = {
        "model": {"name": "dit", "hidden_size": 768, "vae": {"in_channels": 3, "sample_size": 256}},
        "optimizer": {"AdamW": {"eps": 1e-8}},
        "precision": {"fp16_type": "cbfloat16", "loss_scaling_factor": "dynamic"},
    }
    source.write_text(yaml.safe_dump({"trainer": {"init": init, "validate": {}}}))
    trainer = small_params(tmp_path, "dit", tmp_path / "out")["trainer"]
    model = trainer["init"]["model"]
    assert (model["name"], model["hidden_size"]) == ("dit", 32)
    assert (model["vae"]["in_channels"], model["vae"]["sample_size"]) == (3, 8 * LATENT)
    assert trainer["init"]["optimizer"] == init["optimizer"]
    assert trainer["init"]["precision"] == init["precision"]
    assert trainer["fit"]["train_dataloader"]["data_dir"] == str(tmp_path / "out" / "data")
    assert "validate" not in trainer


def test_labels_follow_the_tokens(tmp_path: Path) -> None:
    write_gpt(tmp_path)
    with h5py.File(tmp_path / "tokens.h5") as file:
        rows = file["data"][()]
        assert file.attrs["n_examples"] == len(rows)
    assert rows.shape[1:] == (3, LENGTH)
    assert (rows[:, 0, 1:] == rows[:, 2, :-1]).all()
    assert rows.max() < VOCABULARY


def test_words_are_in_the_vocabulary(tmp_path: Path) -> None:
    for write, name in ((write_bert, "vocab_file"), (write_t5, "src_vocab_file")):
        folder = tmp_path / name
        folder.mkdir()
        words = Path(write(folder)[name]).read_text().split()
        assert len(words) == VOCABULARY
        assert words[9] == "w9"
    with (tmp_path / "vocab_file" / "train.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == SAMPLES
    assert "'[CLS]', 'w8'" in rows[0]["tokens"]


def test_images_and_latents_have_their_folders(tmp_path: Path) -> None:
    for write, ending in ((write_images, "png"), (write_latents, "npz")):
        folder = tmp_path / ending
        folder.mkdir()
        write(folder)
        for split in ("train", "val"):
            assert len(list((folder / split).glob(f"*/*.{ending}"))) == SAMPLES
    sample = np.load(next((tmp_path / "npz").rglob("*.npz")))
    assert sample["vae_output"].shape == (8, LATENT, LATENT)
    classes, _ = torch.load(tmp_path / "png" / "meta.bin", weights_only=True)
    assert set(classes) == {path.name for path in (tmp_path / "png" / "train").iterdir()}


@pytest.mark.parametrize(
    ("last", "resumed", "is_good"), [(3.0, 2.5, True), (4.5, 2.5, False), (3.0, None, False)]
)
def test_a_run_is_good_if_its_loss_falls(last: float, resumed: float | None, is_good: bool) -> None:
    outcome = Outcome(first=4.0, last=last, resumed=resumed, checkpoint="checkpoint_9.mdl")
    assert outcome.is_good == is_good
