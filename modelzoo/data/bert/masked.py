"""Sequences for masked language models, from CSV files or from HDF5 files.

CSV files hold words, or tokens that are prepared; HDF5 files what was masked when they were
prepared:
    data      (num_sequences, 2, T): rows input_ids, attention_mask; with packed sequences (VSL)
              four rows, also attention_span and position_ids
    labels    (num_sequences, 1, T): -100 where a label does not count; or (num_sequences, 3, P),
              gathered: rows labels, masked_lm_positions, masked_lm_mask
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from modelzoo.data.files.csv_file import (
    CsvRows,
    check_columns,
    listed_files,
    number,
    numbers,
    open_folders,
    words,
)
from modelzoo.data.files.folders import FolderProcessor, Folders
from modelzoo.data.files.hdf5_file import inspect_dataset
from modelzoo.data.files.hdf5_samples import SideBySide
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.language.masking import WORDS, MaskedBatches, Masking
from modelzoo.data.language.vocabulary import CONTINUES, Vocabulary
from modelzoo.data.source import EarlierKey, Samples
from waferstream.core.errors import DataError
from waferstream.core.program.program import LoaderKind
from waferstream.preparation.sequences import PACKED_FEATURES
from waferstream.workload.data import Batch, BatchSource

IGNORED = -100
"""Label of a token that does not count (torch.nn.CrossEntropyLoss, ignore_index)."""

_TOKENS = ("input_ids", "attention_mask")
_PACKED_TOKENS = (*_TOKENS, *PACKED_FEATURES[-2:])
_LABELS = ("labels",)
_GATHERED = ("labels", "masked_lm_positions", "masked_lm_mask")


class CsvProcessor(FolderProcessor):
    """Keys that every data processor of CSV files has."""

    data_dir: Folders
    """Folders with CSV files and their list, ``meta.dat``."""

    disable_nsp: bool | None = None
    """Whether features of sentence pairs are left out; by default where the files lack them."""

    dynamic_mlm_scale: Literal[False] = False
    buckets: None = None

    loader: LoaderKind = "csv"

    shuffle_buffer: PositiveInt | None = None
    """Accepted for compatibility: a shuffle is one of the whole dataset."""
    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool = True
    """For the processes of the real machine's input workers; no effect here."""

    vocab_size: EarlierKey = None
    whole_word_masking: EarlierKey = None

    def count_files(self) -> int:
        return sum(len(listed_files(Path(folder).expanduser())) for folder in self.folders)


class BertCSVDynamicMaskDataProcessor(CsvProcessor):
    """Sequences of words, whose tokens are masked when they are read.

    Columns: ``tokens``; with sentence pairs also ``segment_ids`` and ``is_random_next``.
    """

    vocab_file: str
    """A token in each line; its number is that of the line. ``$NAME`` is replaced."""
    max_sequence_length: PositiveInt
    max_predictions_per_seq: PositiveInt
    """Labels of a sequence, at most."""
    masked_lm_prob: float = Field(default=0.15, gt=0, le=1)
    """Share of the tokens that is chosen."""
    mask_whole_word: bool = False
    """Whether all tokens of a word are chosen together."""
    do_lower: bool = False
    gather_mlm_labels: bool = True
    """Whether labels are those of the chosen tokens alone, with their positions."""
    shuffle: bool = True

    oov_token: str = "[UNK]"
    mask_token: str = "[MASK]"
    document_separator_token: str = "[SEP]"
    exclude_from_masking: tuple[str, ...] = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
    labels_pad_id: int = 0
    input_pad_id: int = 0
    attn_mask_pad_id: Literal[0] = 0
    segment_pad_id: int = 0

    num_examples: EarlierKey = None
    steps: EarlierKey = None

    def source(self) -> BatchSource:
        vocabulary = Vocabulary(self.vocab_file, self.oov_token, self.do_lower)
        mask_token = vocabulary.special(self.mask_token)
        samples = WordSamples(open_folders(self.folders), self, vocabulary)
        never = {vocabulary.number(token) for token in samples.never_masked}
        masking = Masking(
            share=self.masked_lm_prob,
            most=self.max_predictions_per_seq,
            mask_token=mask_token,
            replacements=np.array(sorted(set(range(vocabulary.size)) - never), dtype=np.int64),
            label_of_others=self.labels_pad_id,
            gathers=self.gather_mlm_labels,
        )
        return MaskedBatches(self.ordered(samples), masking, self.shuffle_seed)


class WordSamples:
    """Sequences of words as tokens, padded, with the word of each token."""

    def __init__(
        self, rows: CsvRows, config: BertCSVDynamicMaskDataProcessor, vocabulary: Vocabulary
    ) -> None:
        self.name = rows.name
        self._rows = rows
        self._config = config
        self._vocabulary = vocabulary
        self.never_masked = frozenset(map(vocabulary.cased, config.exclude_from_masking))
        check_columns(rows, ("tokens",))
        pairs = {"segment_ids", "is_random_next"}
        self._has_pairs = pairs <= rows.columns and not config.disable_nsp
        if config.disable_nsp is False:
            check_columns(rows, sorted(pairs))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: np.ndarray) -> Batch:
        config, rows = self._config, self._rows.read(indices)
        shape = (len(rows), config.max_sequence_length)
        features: dict[str, np.ndarray] = {
            "input_ids": np.full(shape, config.input_pad_id, dtype=np.int64),
            "attention_mask": np.zeros(shape, dtype=np.int64),
            WORDS: np.full(shape, -1, dtype=np.int64),
        }
        if self._has_pairs:
            features["token_type_ids"] = np.full(shape, config.segment_pad_id, dtype=np.int64)
            features["next_sentence_label"] = np.zeros(len(rows), dtype=np.int64)
        for place, row in enumerate(rows):
            tokens = self._tokens(row)
            stop = len(tokens)
            features["input_ids"][place, :stop] = list(map(self._vocabulary.number, tokens))
            features["attention_mask"][place, :stop] = 1
            features[WORDS][place, :stop] = self._words(tokens)
            if self._has_pairs:
                segments = numbers(row["segment_ids"], self.name, most=shape[1])
                features["token_type_ids"][place, : len(segments)] = segments
                features["next_sentence_label"][place] = number(row["is_random_next"], self.name)
        return {name: torch.from_numpy(values) for name, values in features.items()}

    def _tokens(self, row: Mapping[str, str]) -> list[str]:
        """Return the tokens of a row; cut where a cut leaves no label of the pair wrong."""
        tokens = list(map(self._vocabulary.cased, words(row["tokens"], self.name)))
        length = self._config.max_sequence_length
        if len(tokens) > length and self._has_pairs:
            raise DataError(
                "a pair of sentences must be at most max_sequence_length long",
                code="sequence-too-long",
                where=self.name,
                value=f"{len(tokens)}, max_sequence_length {length}",
                remedy="raise max_sequence_length, or set disable_nsp: true to cut sequences",
            )
        return tokens[:length]

    def _words(self, tokens: Sequence[str]) -> list[int]:
        """Return the number of the word of each token; -1 for those that are never masked."""
        whole, never = self._config.mask_whole_word, self.never_masked
        found: list[int] = []
        word = -1
        for token in tokens:
            if not (whole and found and token.startswith(CONTINUES) and found[-1] >= 0):
                word += 1
            found.append(-1 if token in never else word)
        return found


class BertCSVDataProcessor(CsvProcessor):
    """Sequences that were masked when they were prepared.

    Columns: ``input_ids``, ``attention_mask`` and ``labels``; where they exist also
    ``masked_lm_weights`` (1 for labels that count), ``masked_lm_positions``, ``token_type_ids`` and
    ``next_sentence_label``. Without weights, labels of -100 do not count.
    """

    vocab_file: EarlierKey = None
    max_predictions_per_seq: EarlierKey = None
    do_lower: EarlierKey = None
    masked_lm_prob: EarlierKey = None
    max_sequence_length: EarlierKey = None
    max_position_embeddings: EarlierKey = None

    def source(self) -> BatchSource:
        return self.ordered(PreparedSamples(open_folders(self.folders), self.disable_nsp))


class PreparedSamples:
    """Sequences whose features are columns."""

    def __init__(self, rows: CsvRows, disable_nsp: bool | None) -> None:
        self.name = rows.name
        self._rows = rows
        needed = ("input_ids", "attention_mask", "labels")
        pairs = ("token_type_ids", "next_sentence_label")
        check_columns(rows, (*needed, *pairs) if disable_nsp is False else needed)
        optional = ("masked_lm_weights", "masked_lm_positions", *(() if disable_nsp else pairs))
        self._columns = (*needed, *(name for name in optional if name in rows.columns))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: np.ndarray) -> Batch:
        rows = self._rows.read(indices)
        batch = {name: self._stacked(name, [row[name] for row in rows]) for name in self._columns}
        if "next_sentence_label" in batch:
            batch["next_sentence_label"] = batch["next_sentence_label"].flatten()
        if "masked_lm_weights" in batch:
            return batch | {"masked_lm_mask": batch.pop("masked_lm_weights")}
        return batch | counted_labels(batch["labels"])

    def _stacked(self, name: str, texts: Sequence[str]) -> torch.Tensor:
        lists = [numbers(text, self.name) for text in texts]
        if len(set(map(len, lists))) > 1:
            raise DataError(
                "all rows must have values of one length",
                code="sequence-lengths-differ",
                where=self.name,
                value=f"{name} of {sorted(set(map(len, lists)))}",
                rule="sequences are padded when they are prepared",
            )
        return torch.tensor(lists, dtype=torch.int64)


def counted_labels(labels: torch.Tensor) -> Batch:
    """Return labels with 0 for those that do not count, and 1 for those that do."""
    counted = labels != IGNORED
    return {"labels": labels.masked_fill(~counted, 0), "masked_lm_mask": counted.long()}


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
