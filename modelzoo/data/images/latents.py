"""Images as latents of an autoencoder, with the noise and time steps of a diffusion model.

A file ``FOLDER/SPLIT/CLASS/*.npz`` holds ``vae_output``, means and logarithms of variances (2 C,
height, width), fp32. Classes are numbered in the order of their names, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import PositiveInt
from pydantic import field_validator as check

from modelzoo.data.files.folders import FolderProcessor, Folders, cached, labelled_files
from modelzoo.data.order import mix64, standard_normal
from modelzoo.data.source import OrderedBatches, RedrawnBatches
from waferstream.core.errors import DataError
from waferstream.core.program.program import LoaderKind
from waferstream.core.rng import stream_key
from waferstream.core.units import MIB
from waferstream.workload.data import Batch, BatchSource

LATENT_SCALE = 0.18215
"""Factor that gives latents of the published autoencoder variance 1 (Rombach et al. 2022, section
G; configuration of stabilityai/sd-vae-ft-ema)."""

_LEAST_LOG_VARIANCE, _MOST_LOG_VARIANCE = -30.0, 20.0  # as in the published autoencoder
_ARRAY = "vae_output"
_MOST_BYTES = 64 * MIB  # of an array: 16 channels of 1024 x 1024 points


class DiffusionLatentImageNet1KProcessor(FolderProcessor):
    """Latents of images by class; each sample is drawn from one of the folders."""

    data_dir: Folders
    """Folders with a folder for each split. A sample comes from any of them."""
    split: Literal["train", "val"] = "train"
    """Samples of ``val`` are never shuffled."""
    num_classes: PositiveInt
    num_diffusion_steps: PositiveInt = 1000
    """Time steps are drawn below it."""
    latent_size: tuple[PositiveInt, PositiveInt] | None = None
    """Height and width; with the channels that of the first file by default."""
    latent_channels: PositiveInt | None = None
    vae_scaling_factor: float = LATENT_SCALE
    image_channels: PositiveInt = 3
    """Of the images before the autoencoder; no effect on their latents."""
    noaugment: bool = False
    """No effect: latents are never changed."""
    transforms: tuple[()] = ()
    """Must be empty: latents are never changed."""

    use_worker_cache: bool = False
    """Copy the folders to the disk of each input worker's host before they are read."""

    loader: LoaderKind = "npz"
    image_size: Any = None
    """Of the images before the autoencoder; no effect on their latents."""
    prefetch_factor: int | None = None
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool | None = None
    """For the processes of the real machine's input workers; no effect here."""

    @check("vae_scaling_factor")
    @classmethod
    def _is_published(cls, factor: float) -> float:
        return checked_scale(factor)

    @property
    def shuffles(self) -> bool:
        """Whether samples are shuffled: those of the split ``train`` may be."""
        return self.shuffle and self.split == "train"

    def count_files(self) -> int:
        return sum(len(latent_files(folder, self.split)) for folder in self.folders)

    def source(self) -> BatchSource:
        read = cached if self.use_worker_cache else str
        folders = [latent_files(read(folder), self.split) for folder in self.folders]
        samples = LatentSamples(folders, ", ".join(self.folders))
        self._check_shape(samples)
        return NoisyBatches(self.ordered(samples), samples, self)

    def _check_shape(self, samples: LatentSamples) -> None:
        """Refuse files of another shape than the keys state."""
        channels, *size = samples.shape
        if self.latent_channels not in {None, channels // 2} or channels % 2:
            raise _wrong_shape(samples.name, samples.shape, "2 latent_channels")
        if self.latent_size not in {None, tuple(size)}:
            raise _wrong_shape(samples.name, samples.shape, f"latent_size {self.latent_size}")


def checked_scale(factor: float) -> float:
    """Return the scale of latents; ValueError if it is not that of the published autoencoder."""
    if factor != LATENT_SCALE:
        raise ValueError(f"must be {LATENT_SCALE}, in the sections of model and data")
    return factor


class LatentSamples:
    """Means and logarithms of variances, with labels, from one of several folders each."""

    def __init__(
        self,
        folders: Sequence[Sequence[tuple[Path, int]]],
        name: str,
    ) -> None:
        self.name = name
        self.num_folders = len(folders)
        self._folders = folders
        self.shape = read_latent(folders[0][0][0]).shape

    def __len__(self) -> int:
        return max(map(len, self._folders))

    def read(self, indices: np.ndarray) -> Batch:
        """Return the numbers of samples; their files are opened when the folders are known."""
        return {"numbers": torch.from_numpy(indices)}

    def load(self, indices: np.ndarray, folders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (batch, 2 C, height, width) fp32 and int64 labels (batch,)."""
        latents = np.empty((len(indices), *self.shape), dtype=np.float32)
        labels = np.empty(len(indices), dtype=np.int64)
        for place, (index, folder) in enumerate(zip(indices, folders, strict=True)):
            files = self._folders[folder]
            path, labels[place] = files[index % len(files)]
            latent = read_latent(path)
            if latent.shape != self.shape:
                raise _wrong_shape(str(path), latent.shape, f"{self.shape}, as the first file")
            latents[place] = latent
        return latents, labels


class NoisyBatches(RedrawnBatches):
    """Batches of latents, drawn anew in each epoch, with noise and time steps."""

    def __init__(
        self,
        ordered: OrderedBatches,
        samples: LatentSamples,
        config: DiffusionLatentImageNet1KProcessor,
    ) -> None:
        super().__init__(ordered)
        self._samples = samples
        self._steps = config.num_diffusion_steps
        self._scale = config.vae_scaling_factor
        self._seed = config.shuffle_seed

    def batch(self, step: int) -> Batch:
        places = self.ordered.places(step).astype(np.uint64)
        folders = self._hashes("folder", places)[0] % np.uint64(self._samples.num_folders)
        indices = self.ordered.batch(step)["numbers"].numpy()
        outputs, labels = self._samples.load(indices, folders.astype(np.int64))
        means, logarithms = np.split(outputs, 2, axis=1)
        deviations = np.exp(0.5 * logarithms.clip(_LEAST_LOG_VARIANCE, _MOST_LOG_VARIANCE))
        steps = self._hashes("step", places)[0] % np.uint64(self._steps)
        latents = (means + deviations * self._noise("latent", means.shape, places)) * np.float32(
            self._scale
        )
        return {
            "latents": torch.from_numpy(latents),
            "noise": torch.from_numpy(self._noise("noise", means.shape, places)),
            "timesteps": torch.from_numpy(steps.astype(np.int64)),
            "labels": torch.from_numpy(labels),
        }

    def _noise(self, name: str, shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
        size = np.uint64(np.prod(shape[1:]))
        counters = places[:, None] * size + np.arange(size, dtype=np.uint64)
        return standard_normal(self._hashes(name, counters)).reshape(shape)

    def _hashes(self, name: str, counters: np.ndarray) -> np.ndarray:
        """Return two uint64 hashes of each counter."""
        key = np.uint64(stream_key(self._seed, "latents", name))
        first = mix64(mix64(counters) ^ key)
        return np.stack([first, mix64(first ^ key)])


def latent_files(folder: str, split: str) -> list[tuple[Path, int]]:
    """Return the files of a split with the numbers of their classes; DataError without any."""
    return labelled_files(folder, split, (".npz",))


def read_latent(path: Path) -> np.ndarray:
    """Return the output of the autoencoder (2 C, height, width) in a file; DataError without."""
    try:
        # numpy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if arrays.zip.getinfo(f"{_ARRAY}.npy").file_size > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES} bytes")  # a few may stand for them
            latent = np.asarray(arrays[_ARRAY], dtype=np.float32)
    except Exception as error:  # numpy, zipfile and zlib raise many kinds on damaged files
        raise DataError(
            "the file of latents cannot be read",
            code="latents-damaged",
            where=str(path),
            value=error,
            rule=f"an .npz file with an array {_ARRAY!r}",
        ) from error
    if latent.ndim != 3:
        raise _wrong_shape(str(path), latent.shape, "(2 latent_channels, height, width)")
    return latent


def _wrong_shape(where: str, shape: tuple[int, ...], rule: str) -> DataError:
    return DataError(
        "latents must have the stated shape",
        code="latents-wrong-shape",
        where=where,
        value=shape,
        rule=rule,
    )
