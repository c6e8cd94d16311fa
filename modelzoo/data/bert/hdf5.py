"""Sequences for masked language models from HDF5 files, masked when they were prepared.

data      (num_sequences, 2, T): rows input_ids, attention_mask; with packed sequences (VSL) four
          rows, also attention_span and position_ids
labels    (num_sequences, 1, T): -100 where a label does not count; or (num_sequences, 3, P),
          gathered: rows labels, masked_lm_positions, masked_lm_mask
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from modelzoo.data.bert.csv import counted_labels
from modelzoo.data.files.hdf5_file import PACKED_FEATURES, inspect_dataset
from modelzoo.data.files.hdf5_samples import SideBySide
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.registry import register_processor
from modelzoo.data.source import Batch, Samples

_TOKENS = ("input_ids", "attention_mask")
_PACKED_TOKENS = (*_TOKENS, *PACKED_FEATURES[-2:])
_LABELS = ("labels",)
_GATHERED = ("labels", "masked_lm_positions", "masked_lm_mask")


@register_processor
class BertHDF5DataProcessor(UncutHDF5DataProcessor):
    """Masked sequences, prepared as HDF5 files."""

    def opened(self, parts: Sequence[Sequence[Path]]) -> list[Samples]:
        tokens = _PACKED_TOKENS if self.use_vsl else _TOKENS
        found = [
            self.joined(
                [[inspect_dataset(path, name, layouts) for path in paths] for paths in parts]
            )
            for name, layouts in (("data", [tokens]), ("labels", [_LABELS, _GATHERED]))
        ]
        return [MaskedSamples(data, labels) for data, labels in zip(*found, strict=True)]


class MaskedSamples(SideBySide):
    """Masked sequences and their labels."""

    def read(self, indices: np.ndarray) -> Batch:
        batch = super().read(indices)
        return batch if "masked_lm_mask" in batch else batch | counted_labels(batch["labels"])
