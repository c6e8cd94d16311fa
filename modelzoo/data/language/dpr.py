"""Questions with passages that answer them and passages that do not, from HDF5 files.

data_0    (num_questions, 3, T): a row for each feature of the question
data_1    (num_questions, 3, P, T): a row for each feature of P passages, the right one first
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from modelzoo.data.files.hdf5_file import inspect_dataset
from modelzoo.data.files.hdf5_samples import SideBySide
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.source import Samples

_PARTS = ("input_ids", "attention_mask", "token_type_ids")
_QUESTIONS = tuple(f"questions_{part}" for part in _PARTS)
_PASSAGES = tuple(f"ctx_{part}" for part in _PARTS)


class DPRHDF5DataProcessor(UncutHDF5DataProcessor):
    """Questions and their passages, prepared as HDF5 files.

    A shuffle is one of the whole data set here, not of a buffer.
    """

    use_vsl: Literal[False] = False
    """Must be false: texts are not packed."""
    shuffle_buffer: PositiveInt | None = None
    """Accepted for compatibility."""

    def opened(self, parts: Sequence[Sequence[Path]]) -> list[Samples]:
        questions = [[inspect_dataset(path, "data_0", [_QUESTIONS]) for path in p] for p in parts]
        passages = [
            [inspect_dataset(path, "data_1", [_PASSAGES], is_nested=True) for path in paths]
            for paths in parts
        ]
        sides = self.joined(questions), self.joined(passages)
        return [SideBySide(*pair) for pair in zip(*sides, strict=True)]
