"""Sentences to classify, from the tables of the GLUE benchmark (Wang et al. 2019, GLUE).

A table is a text file with tabs between columns and a first line of their names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt

from modelzoo.data.files.csv_file import TSV, CsvRows, check_columns, inspect_csv, number
from modelzoo.data.files.folders import FolderProcessor
from modelzoo.data.language.vocabulary import Vocabulary, WordPieces
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource

_FIRST, _END, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_NUM_SPECIAL = 3
"""The first token and an end for each of two sentences."""


class GlueProcessor(FolderProcessor):
    """Keys that every data processor of a GLUE task has."""

    is_training: bool
    """Whether the tables are those of training; otherwise of development."""
    data_dir: str
    """Folder with the tables of the task."""
    vocab_file: str
    """A token in each line; its number is that of the line. ``$NAME`` is replaced."""
    do_lower: bool = False
    max_sequence_length: int = Field(gt=_NUM_SPECIAL)
    """Longer sentences are cut, the longer one of a pair first."""
    shuffle: bool = True
    input_pad_id: NonNegativeInt = 0
    attn_mask_pad_id: Literal[0] = 0

    labels_pad_id: NonNegativeInt = 0
    """No effect: a sample has one label."""
    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool = True
    """For the processes of the real machine's input workers; no effect here."""

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, without their suffix."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns of the sentences of a sample, and of its class."""

    @abstractmethod
    def label(self, text: str, where: str) -> int:
        """Return the class of a text in the column of classes, found at ``where``."""

    def source(self) -> BatchSource:
        vocabulary = Vocabulary(self.vocab_file, _UNKNOWN, self.do_lower)
        folder = Path(self.data_dir).expanduser()
        files = [inspect_csv(folder / f"{table}.tsv", TSV) for table in self.tables]
        rows = CsvRows(files, ", ".join(str(file.path) for file in files))
        check_columns(rows, self.columns)
        return self.ordered(SentenceSamples(rows, self, vocabulary, len(files[0])))


class SST2DataProcessor(GlueProcessor):
    """Sentences of film reviews, which praise (1) or blame (0) (Socher et al. 2013, SST-2)."""

    @property
    def tables(self) -> tuple[str, ...]:
        return ("train",) if self.is_training else ("dev",)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("sentence", "label")

    def label(self, text: str, where: str) -> int:
        return number(text, where)


class MNLIDataProcessor(GlueProcessor):
    """Pairs of sentences: does the first imply the second (Williams et al. 2018, MultiNLI).

    Tables of development are of the domains of training (``is_matched``) or of others
    (``is_mismatched``).
    """

    @property
    def tables(self) -> tuple[str, ...]:
        return ("train",) if self.is_training else ("dev_matched", "dev_mismatched")

    @property
    def columns(self) -> tuple[str, ...]:
        return ("sentence1", "sentence2", "gold_label")

    def label(self, text: str, where: str) -> int:
        classes = ("entailment", "neutral", "contradiction")
        if text not in classes:
            raise DataError(
                "gold_label must be a class",
                code="unknown-label",
                where=where,
                value=text,
                rule=f"one of {', '.join(classes)}",
            )
        return classes.index(text)


class SentenceSamples:
    """Sentences as tokens, padded, with segments and classes."""

    def __init__(
        self, rows: CsvRows, config: GlueProcessor, vocabulary: Vocabulary, num_matched: int
    ) -> None:
        self.name = rows.name
        self._rows = rows
        self._config = config
        self._pieces = WordPieces(vocabulary)
        self._first, self._end = vocabulary.special(_FIRST), vocabulary.special(_END)
        self._num_matched = num_matched

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: np.ndarray) -> Batch:
        config, rows = self._config, self._rows.read(indices)
        shape = (len(rows), config.max_sequence_length)
        tokens = np.full(shape, config.input_pad_id, dtype=np.int64)
        mask, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for place, row in enumerate(rows):
            for segment, sequence in enumerate(self._sequences(row)):
                start = int(mask[place].sum())
                stop = start + len(sequence)
                tokens[place, start:stop], mask[place, start:stop] = sequence, 1
                segments[place, start:stop] = segment
        labels = [config.label(row[config.columns[-1]], self.name) for row in rows]
        batch = {
            "input_ids": torch.from_numpy(tokens),
            "attention_mask": torch.from_numpy(mask),
            "token_type_ids": torch.from_numpy(segments),
            "labels": torch.tensor(labels, dtype=torch.int64),
        }
        if len(config.tables) == 1:
            return batch
        matched = torch.from_numpy((indices < self._num_matched).astype(np.int64))
        return batch | {"is_matched": matched, "is_mismatched": 1 - matched}

    def _sequences(self, row: Mapping[str, str]) -> list[list[int]]:
        """Return the tokens of each sentence with its special ones, cut to fit."""
        sentences = [self._pieces.tokens(row[name]) for name in self._config.columns[:-1]]
        room = self._config.max_sequence_length - 1 - len(sentences)
        while sum(map(len, sentences)) > room:
            longest = max(map(len, sentences))
            next(each for each in reversed(sentences) if len(each) == longest).pop()
        sequences = [[*each, self._end] for each in sentences]
        return [[self._first, *sequences[0]], *sequences[1:]]
