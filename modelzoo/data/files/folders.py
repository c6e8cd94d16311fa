"""Datasets that are whole folders, and their copies on the disk of an input worker's host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from cstorch import distributed
from modelzoo.data.source import OrderedBatches, Samples
from waferstream.core.errors import DataError
from waferstream.host.locks import locked
from waferstream.host.user_state import make_private
from waferstream.workload.data import DataProcessor

Folders = str | Annotated[tuple[str, ...], Field(min_length=1)]

_LONGEST_COPY_S = 3600.0  # which another input worker of the host makes


class FolderProcessor(DataProcessor):
    """Keys that every data processor of folders has."""

    data_dir: Folders
    """Folders of the dataset."""

    shuffle: bool = False

    drop_last: Literal[True] = True
    """Every batch is whole: samples left over at the end of an epoch start the next one."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the dataset."""
        return (self.data_dir,) if isinstance(self.data_dir, str) else self.data_dir

    @property
    def shuffles(self) -> bool:
        """Whether samples are shuffled."""
        return self.shuffle

    def ordered(self, samples: Samples) -> OrderedBatches:
        """Return samples in their configured order."""
        return OrderedBatches(
            samples,
            batch_size=self.batch_size,
            shuffle=self.shuffles,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )


def labelled_files(folder: str, split: str, suffixes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the files below ``FOLDER/SPLIT/CLASS``, sorted, with the numbers of their classes.

    Classes are numbered in the order of their names, as in torchvision.

    Args:
        folder: Folder of the dataset.
        split: Its part.
        suffixes: Suffixes of the files in lower case, with their dot.

    Raises:
        DataError: There is no such file.
    """
    root = Path(folder).expanduser() / split
    classes = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    found = [
        (path, label)
        for label, each in enumerate(classes)
        for path in sorted(each.rglob("*"))
        if path.suffix.lower() in suffixes
    ]
    if not found:
        raise DataError(
            "the folder must have files of the split",
            code="data-file-not-found",
            where=str(root),
            rule=f"a folder for each class, with files that end in {' or '.join(suffixes)}",
            remedy="correct the path, or prepare the dataset first",
        )
    return found


def cached(pattern: str) -> str:
    """Return the copy of a folder, made or renewed if need be; files and globs stay as they are.

    A copy is renewed if names, sizes or times of the files differ.

    Raises:
        DataError: The disk has no room for the copy.
    """
    folder = Path(pattern).expanduser().resolve()
    if not folder.is_dir():
        return pattern
    root = Path(distributed.WORKER_CACHE_ROOT)
    make_private(root)  # another user could give a copy other data
    copy = root / f"{folder.name}-{sha256(str(folder).encode()).hexdigest()[:16]}"
    with locked(copy.with_name(f"{copy.name}.lock"), _LONGEST_COPY_S):  # one copy for all workers
        if _content(copy) != _content(folder):
            _renew(folder, copy)
    return str(copy)


def _content(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of every file below a folder."""
    found = {path.relative_to(folder): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def _renew(folder: Path, copy: Path) -> None:
    """Copy a folder, so that a reader sees the whole copy or none; DataError if it does not fit."""
    is_full, needed, left = distributed.hit_worker_cache_limit(str(folder), str(copy))
    if is_full:
        raise DataError(
            "the worker cache must have room for the data",
            code="worker-cache-full",
            where=str(folder),
            value=f"{needed} bytes, {left} left",
            remedy=f"delete {distributed.WORKER_CACHE_ROOT}, or set use_worker_cache to false",
        )
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    shutil.copytree(folder, partial)
    shutil.rmtree(copy, ignore_errors=True)
    partial.rename(copy)
