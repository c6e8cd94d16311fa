"""Plain text as bytes: a vocabulary of 256, no tokenizer, no preparation."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from modelzoo.data.source import OrderedBatches, next_token_batch
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource, DataProcessor
from waferstream.workload.data_files import find_files, text_empty

STDLIB = "stdlib"
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_NEWLINE = np.frombuffer(b"\n", dtype=np.uint8)


class TextDataProcessor(DataProcessor):
    """Next-byte prediction on plain text."""

    path: str
    """A file, a folder, a glob, or ``stdlib``.

    ``stdlib`` is the source code of the running Python's standard library (about 12 MB), which
    every machine has; its bytes differ between Python releases.
    """

    suffixes: tuple[str, ...] = (".txt", ".md", ".py")
    """Suffixes of the files that are read from a folder."""

    max_sequence_length: PositiveInt

    split: Literal["train", "eval"] = "train"
    """``eval`` is the tail of the text, which ``train`` never reads."""

    eval_fraction: float = Field(default=0.02, ge=0, lt=1)

    shuffle: bool = True

    def source(self) -> BatchSource:
        text = _join(self._files(), self.path)
        train_bytes = round(len(text) * (1 - self.eval_fraction))
        part = text[:train_bytes] if self.split == "train" else text[train_bytes:]
        return OrderedBatches(
            TextWindows(part, self.max_sequence_length, f"{self.path}, split {self.split}"),
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )

    def _files(self) -> list[Path]:
        return stdlib_files() if self.path == STDLIB else find_files(self.path, self.suffixes)


class TextWindows:
    """Samples of ``length`` + 1 tokens, ``length`` apart: each token is predicted once.

    Raises DataError if the text is shorter than one window. ``unit`` is what an error calls tokens.
    """

    def __init__(self, text: np.ndarray, length: int, name: str, unit: str = "bytes") -> None:
        if len(text) <= length:
            raise DataError(
                "the text must be longer than one sequence",
                code="text-shorter-than-sequence",
                where=name,
                value=f"{len(text)} {unit}, max_sequence_length {length}",
                rule=f"at least max_sequence_length + 1 {unit}",
                remedy="lower max_sequence_length or add text",
            )
        self.name = name
        self._windows = np.lib.stride_tricks.sliding_window_view(text, length + 1)[::length]

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, indices: np.ndarray) -> Batch:
        return next_token_batch(self._windows[indices])


def stdlib_files() -> list[Path]:
    """Return the standard library's modules, sorted, without tests and installed packages."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(sysconfig.get_path("stdlib")):
        subfolders[:] = set(subfolders) - _SKIPPED_FOLDERS
        found.extend(Path(folder, name) for name in names if name.endswith(".py"))
    return sorted(found)


def _join(files: list[Path], name: str) -> np.ndarray:
    """Return the bytes of all files, with a newline between files."""
    parts: list[np.ndarray] = []
    for file in files:
        parts += [_read(file), _NEWLINE]
    text = np.concatenate(parts[:-1])
    if text.size == 0:
        raise text_empty(name)
    return text


def _read(file: Path) -> np.ndarray:
    try:
        return np.fromfile(file, dtype=np.uint8)
    except OSError as error:
        raise DataError(
            "the file must be readable",
            code="data-file-unreadable",
            where=str(file),
            value=error.strerror or error,
        ) from error
