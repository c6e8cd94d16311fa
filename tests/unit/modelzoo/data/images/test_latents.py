"""Latents are drawn anew in each epoch; every batch is a function of seed and step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modelzoo.data.images.latents import (
    LATENT_SCALE,
    DiffusionLatentImageNet1KProcessor,
    read_latent,
)
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource

SIZE = 4


def write_latents(folder: Path, first: float, log_variance: float) -> None:
    """Two classes with three images each, whose means are ``first`` and the number of the class."""
    for label, name in enumerate(("n01", "n02")):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(3):
            output = np.full((4, SIZE, SIZE), first + label, dtype=np.float32)
            output[2:] = log_variance
            np.savez(folder / "train" / name / f"{number}.npz", vae_output=output, label=label)


def source(*folders: Path, **keys: Any) -> BatchSource:
    section = {
        "data_processor": "DiffusionLatentImageNet1KProcessor",
        "data_dir": tuple(map(str, folders)),
        "batch_size": 3,
        "num_classes": 2,
    }
    return DiffusionLatentImageNet1KProcessor.model_validate(section | keys).source()


def test_latents_are_means_with_noise(tmp_path: Path) -> None:
    """The mean where the variance is as good as 0, times the scale; labels by name of class."""
    write_latents(tmp_path, 5.0, -90.0)
    batches = [source(tmp_path).batch(step) for step in range(3)]
    assert [batch["labels"].tolist() for batch in batches] == [[0] * 3, [1] * 3, [0] * 3]
    expected = torch.full((3, 2, SIZE, SIZE), 6 * LATENT_SCALE)
    torch.testing.assert_close(batches[1]["latents"], expected, atol=1e-5, rtol=0)
    assert not torch.equal(batches[0]["noise"], batches[2]["noise"])
    assert torch.equal(source(tmp_path).batch(2)["noise"], batches[2]["noise"])


def test_noise_and_time_steps_are_spread_evenly(tmp_path: Path) -> None:
    """Standard normal noise, independent of that of the latents; all time steps."""
    write_latents(tmp_path, 0.0, 0.0)
    batches = [source(tmp_path, num_diffusion_steps=4).batch(step) for step in range(60)]
    noise = torch.stack([batch["noise"] for batch in batches])
    latents = torch.stack([batch["latents"] for batch in batches])[::2] / LATENT_SCALE
    for values in (noise, latents):
        assert abs(values.mean()) < 0.05
        assert abs(values.std() - 1) < 0.05
    assert abs((noise[::2] * latents).mean()) < 0.05
    counts = torch.cat([batch["timesteps"] for batch in batches]).bincount()
    assert counts.shape == (4,)
    assert counts.min() > 25


def test_samples_come_from_any_of_the_folders(tmp_path: Path) -> None:
    write_latents(tmp_path / "a", 0.0, -90.0)
    write_latents(tmp_path / "b", 10.0, -90.0)
    both = source(tmp_path / "a", tmp_path / "b")
    means = torch.cat([both.batch(2 * step)["latents"].mean((1, 2, 3)) for step in range(20)])
    assert set((means / LATENT_SCALE).round().tolist()) == {0.0, 10.0}


def test_wrong_latents_are_refused(tmp_path: Path) -> None:
    """No split, another shape, no array, and another scale than that of the model."""
    write_latents(tmp_path, 0.0, 0.0)
    with raises(DataError, "data-file-not-found"):
        source(tmp_path, split="val")
    for keys in ({"latent_channels": 4}, {"latent_size": (8, 8)}):
        with raises(DataError, "latents-wrong-shape"):
            source(tmp_path, **keys)
    np.savez(tmp_path / "train" / "n01" / "1.npz", vae_output=np.zeros((4, 2, 2)))
    with raises(DataError, "latents-wrong-shape"):
        source(tmp_path).batch(0)
    np.savez(tmp_path / "train" / "n01" / "0.npz", other=np.zeros(1))
    with raises(DataError, "latents-damaged"):
        source(tmp_path)
    with pytest.raises(ConfigError):
        source(tmp_path, vae_scaling_factor=1.0)


def test_damaged_latents_are_refused(tmp_path: Path) -> None:
    """A compressed array that is none, a method that zip files do not have, and a hollow array."""
    path = tmp_path / "latent.npz"
    np.savez_compressed(path, vae_output=np.random.default_rng(0).normal(size=(8, 16, 16)))
    good, (start,) = path.read_bytes(), (b"vae_output.npy",)
    data = good.index(start) + len(start) + 40
    method = good.rindex(b"PK\x01\x02") + 10
    for place, value in ((data, b"\xff" * 8), (method, b"\x63")):
        path.write_bytes(good[:place] + value + good[place + len(value) :])
        with raises(DataError, "latents-damaged"):
            read_latent(path)
    np.savez_compressed(path, vae_output=np.zeros((8, 2048, 2048), np.float32))
    with raises(DataError, "latents-damaged"):
        read_latent(path)
