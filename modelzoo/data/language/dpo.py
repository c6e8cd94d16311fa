"""Pairs of responses to a prompt, of which one is preferred, from HDF5 files.

data      (num_pairs, 6, T): a row for each feature of the chosen and the rejected response
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt
from pydantic import field_validator as check

from modelzoo.data.files.hdf5_file import inspect_dataset
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.source import Samples
from waferstream.preparation.sequences import FEATURES

PAIR_FEATURES = tuple(f"{side}_{name}" for side in ("chosen", "rejected") for name in FEATURES)


class DpoHDF5DataProcessor(UncutHDF5DataProcessor):
    """Pairs of responses, prepared as HDF5 files.

    A shuffle is one of the whole data set here, not of a buffer.
    """

    features_list: tuple[str, ...] = PAIR_FEATURES
    """The features of a pair, in the order of their rows."""
    use_vsl: Literal[False] = False
    """Must be false: pairs are not packed."""
    shuffle_buffer: PositiveInt | None = None
    """Accepted for compatibility."""

    def opened(self, parts: Sequence[Sequence[Path]]) -> list[Samples]:
        layouts = [self.features_list]
        return self.joined(
            [[inspect_dataset(path, "data", layouts) for path in paths] for paths in parts]
        )

    @check("features_list")
    @classmethod
    def _states_each_feature(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if sorted(names) != sorted(PAIR_FEATURES):
            raise ValueError(f"must be an order of {', '.join(PAIR_FEATURES)}")
        return names
