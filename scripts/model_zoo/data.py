"""Small data sets in the formats of the Model Zoo's data processors, which a model learns quickly.

Each function writes into an empty folder and returns the section of the data loader.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image

LENGTH, VOCABULARY, SAMPLES, CLASSES = 16, 64, 64, 4
LATENT = 8
"""Height and width of a latent image."""

Loader = dict[str, Any]
WriteData = Callable[[Path], Loader]


def tokens() -> np.ndarray:
    """Return sequences with a token more than LENGTH that rise by 3, without the first tokens."""
    first = 8  # fewer are special tokens
    start = np.arange(SAMPLES)[:, None] * 7
    return first + (start + 3 * np.arange(LENGTH + 1)) % (VOCABULARY - first)


def write_gpt(folder: Path) -> Loader:
    """Write tokens and labels for GptHDF5DataProcessor."""
    rows = tokens()
    columns = [rows[:, :-1], np.ones((SAMPLES, LENGTH)), rows[:, 1:]]
    with h5py.File(folder / "tokens.h5", "w") as file:
        file["data"] = np.stack(columns, axis=1).astype(np.int32)
        file.attrs["n_examples"] = SAMPLES
    return {"data_processor": "GptHDF5DataProcessor", "data_dir": str(folder)}


def write_bert(folder: Path) -> Loader:
    """Write words for BertCSVDynamicMaskDataProcessor, which masks them."""
    vocabulary = _write_vocabulary(folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    with (folder / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["tokens", "segment_ids", "is_random_next"])
        writer.writeheader()
        for number, row in enumerate(tokens()[:, : LENGTH - 2]):
            words = ["[CLS]", *(f"w{token}" for token in row), "[SEP]"]
            segments = [int(place > LENGTH // 2) for place in range(LENGTH)]
            writer.writerow(
                {"tokens": words, "segment_ids": segments, "is_random_next": number % 2}
            )
    (folder / "meta.dat").write_text(f"train.csv {SAMPLES}\n")
    return {
        "data_processor": "BertCSVDynamicMaskDataProcessor",
        "data_dir": str(folder),
        "vocab_file": str(vocabulary),
        "max_sequence_length": LENGTH,
        "max_predictions_per_seq": 4,
        "masked_lm_prob": 0.25,
        "shuffle_seed": 1,
    }


def write_t5(folder: Path) -> Loader:
    """Write words for T5DynamicDataProcessor, which replaces spans of them."""
    vocabulary = _write_vocabulary(folder, ["<pad>", "</s>", "<unk>", "<s>"])
    lines = (" ".join(f"w{token}" for token in row) for row in tokens())
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "meta.dat").write_text(f"train.txt {SAMPLES}\n")
    return {
        "data_processor": "T5DynamicDataProcessor",
        "src_data_dir": str(folder),
        "src_vocab_file": str(vocabulary),
        "src_max_sequence_length": LENGTH,
        "tgt_max_sequence_length": LENGTH,
        "extra_ids": 8,
        "shuffle_seed": 1,
    }


def write_images(folder: Path) -> Loader:
    """Write images of one colour for each class for ImageNet1KProcessor."""
    names = [_name(number) for number in range(CLASSES)]
    torch.save(({name: (name,) for name in names}, []), folder / "meta.bin")
    random = np.random.default_rng(0)
    for number, path in _samples(folder):
        pixels = random.integers(0, 64, (LENGTH, LENGTH, 3)) + 48 * number
        Image.fromarray(pixels.astype(np.uint8)).save(path.with_suffix(".png"))
    size = [LENGTH, LENGTH]
    half = [0.5] * 3
    return {
        "data_processor": "ImageNet1KProcessor",
        "data_dir": str(folder),
        "num_classes": 1000,  # of ImageNet1KProcessor, whatever the folder has
        "image_size": size,
        "shuffle": True,
        "shuffle_seed": 42,
        "prefetch_factor": None,
        "persistent_workers": False,
        "transforms": [
            {"name": "resize", "size": size},
            {"name": "to_tensor"},
            {"name": "normalize", "mean": half, "std": half},
        ],
    }


def write_latents(folder: Path) -> Loader:
    """Write means and logarithms of variances for DiffusionLatentImageNet1KProcessor."""
    random = np.random.default_rng(0)
    for number, path in _samples(folder):
        output = random.normal(number, 0.1, (8, LATENT, LATENT)).astype(np.float32)
        np.savez(path.with_suffix(".npz"), vae_output=output, label=np.int64(number))
    return {
        "data_processor": "DiffusionLatentImageNet1KProcessor",
        "data_dir": str(folder),
        "num_classes": 1000,
        "num_diffusion_steps": 1000,
        "image_channels": 3,
        "shuffle_seed": 1,
        "num_workers": 1,
    }


def _samples(folder: Path) -> Iterator[tuple[int, Path]]:
    """Make the folders of all classes; yield the class and the path, without suffix, of samples."""
    for split in ("train", "val"):
        for number in range(CLASSES):
            place = folder / split / _name(number)
            place.mkdir(parents=True)
            for sample in range(SAMPLES // CLASSES):
                yield number, place / str(sample)


def _name(number: int) -> str:
    """Return the name of a class as ImageNet has it."""
    return f"n{number:08}"


def _write_vocabulary(folder: Path, special: list[str]) -> Path:
    """Write a vocabulary whose word ``w9`` is token 9; return its path."""
    words = [*special, *(f"w{token}" for token in range(len(special), VOCABULARY))]
    path = folder / "vocabulary.txt"
    path.write_text("\n".join(words) + "\n")
    return path
