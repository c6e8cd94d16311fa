"""Folders that preparation has written: their description, and the numbers of their files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py

from waferstream.core.errors import DataError
from waferstream.workload.data_files import find_files
from waferstream.workload.packing import Packing

MANIFEST = "data_params.json"
NUM_SEQUENCES, NUM_DOCUMENTS, NUM_TOKENS = "n_examples", "num_documents", "num_tokens"
"""Attributes of a file; the first is the vendor's."""


def part_name(number: int) -> str:
    """Return the name of a file."""
    return f"part_{number:05d}.h5"


def read_manifest(folder: Path) -> Mapping[str, Any] | None:
    """Return the description of a folder, None if it has none."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    about: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return about


def packing_of(paths: Sequence[Path]) -> Packing | None:
    """Return how full the sequences of files are, None if one of them does not say."""
    sequences = documents = tokens = length = 0
    for path in paths:
        with _opened(path) as file:
            if "data" not in file or not {NUM_DOCUMENTS, NUM_TOKENS} <= set(file.attrs):
                return None
            if file["data"].ndim > 1:
                sequences, length = sequences + len(file["data"]), file["data"].shape[-1]
            documents += int(file.attrs[NUM_DOCUMENTS])
            tokens += int(file.attrs[NUM_TOKENS])
    return Packing(sequences, documents, tokens, length)


def files_of(place: Path) -> list[Path]:
    """Return the files of a folder, or a single one; DataError if there is none."""
    return find_files(str(place), [".h5"])


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            "the file cannot be read as HDF5",
            code="prepared-file-damaged",
            where=str(path),
            value=error,
            remedy="delete it and repeat the command that wrote it",
        ) from error
