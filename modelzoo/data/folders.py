"""Data processors of datasets that are whole folders."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from modelzoo.data.source import DataProcessor, OrderedBatches, Samples

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
