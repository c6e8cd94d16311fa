"""Data processors of datasets that are whole folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from modelzoo.data.source import DataProcessor, OrderedBatches, Samples
from waferstream.core.errors import DataError

Folders = str | Annotated[tuple[str, ...], Field(min_length=1)]


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
