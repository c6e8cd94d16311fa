"""Tokens and sentences to classify, from CSV files of words or of prepared tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt

from modelzoo.data.bert.masked import CsvProcessor
from modelzoo.data.files.csv_file import CsvRows, check_columns, numbers, open_folders
from modelzoo.data.language.vocabulary import Vocabulary
from modelzoo.data.source import padded
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource

_PADDING, _UNKNOWN = "[PAD]", "[UNK]"


class TaskProcessor(CsvProcessor):
    """Keys of both data processors."""

    vocab_file: str
    """A token in each line; its number is that of the line. ``$NAME`` is replaced."""
    do_lower: bool = False
    max_sequence_length: PositiveInt
    """Longer sequences are cut."""
    shuffle: bool = True
    mask_whole_word: bool = False
    """No effect: nothing is masked."""

    def vocabulary(self) -> Vocabulary:
        """Read the vocabulary."""
        return Vocabulary(self.vocab_file, _UNKNOWN, self.do_lower)


class BertTokenClassifierDataProcessor(TaskProcessor):
    """Words with a class each, for instance the names in a text.

    Columns: ``tokens`` and ``labels``, as many words each, with blanks in between.
    """

    label_vocab_file: str
    """JSON file of the numbers of the classes by name; by default that of the model."""
    include_padding_in_loss: bool = False
    """Whether padding has a loss, too; by default as the model says."""
    input_pad_id: NonNegativeInt | None = None
    """Token of padding; by default ``[PAD]``."""
    labels_pad_id: NonNegativeInt | None = None
    """Class of padding; by default the number of the token ``[PAD]``."""
    attn_mask_pad_id: NonNegativeInt | None = None
    """Mask at padding; by default the number of the token ``[PAD]``."""

    def source(self) -> BatchSource:
        rows = open_folders(self.folders)
        check_columns(rows, ("tokens", "labels"))
        return self.ordered(LabelledWords(rows, self, self.vocabulary()))


class LabelledWords:
    """Words as tokens, padded, with their classes."""

    def __init__(
        self, rows: CsvRows, config: BertTokenClassifierDataProcessor, vocabulary: Vocabulary
    ) -> None:
        self.name = rows.name
        self._rows = rows
        self._config = config
        self._vocabulary = vocabulary
        self._classes = read_classes(Path(config.label_vocab_file).expanduser())
        self._padding = vocabulary.special(_PADDING)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: np.ndarray) -> Batch:
        config, rows = self._config, self._rows.read(indices)
        tokens, labels, mask = (
            np.full(
                (len(rows), config.max_sequence_length),
                self._padding if padding is None else padding,
                dtype=np.int64,
            )
            for padding in (config.input_pad_id, config.labels_pad_id, config.attn_mask_pad_id)
        )
        for place, row in enumerate(rows):
            found, classes = self._sample(row)
            stop = len(found)
            tokens[place, :stop], labels[place, :stop], mask[place, :stop] = found, classes, 1
        counted = np.ones_like(mask) if config.include_padding_in_loss else mask.copy()
        features = {
            "input_ids": tokens,
            "attention_mask": mask,
            "loss_mask": counted,
            "token_type_ids": np.zeros_like(mask),
            "labels": labels,
        }
        return {name: torch.from_numpy(values) for name, values in features.items()}

    def _sample(self, row: Mapping[str, str]) -> tuple[list[int], list[int]]:
        """Return the tokens and classes of a row, cut to fit."""
        most = self._config.max_sequence_length
        words, names = row["tokens"].split(), row["labels"].split()
        unknown = [name for name in names if name not in self._classes]
        if unknown or len(words) != len(names):
            raise DataError(
                "every word must have a class that is listed",
                code="unknown-label",
                where=self.name,
                value=unknown[0] if unknown else f"{len(words)} words, {len(names)} classes",
                rule=f"one of {', '.join(self._classes)} for each word",
            )
        cased = map(self._vocabulary.cased, words[:most])
        return list(map(self._vocabulary.number, cased)), [self._classes[n] for n in names[:most]]


class BertSumCSVDataProcessor(TaskProcessor):
    """Documents whose sentences belong to a summary or not.

    Columns, in this order: tokens, a class of each sentence, segments, and the position of each
    sentence's first token. They are read by their place, as at the vendor, whatever their names.
    """

    max_cls_tokens: PositiveInt
    """Sentences of a document, at most; others are left out."""
    pad_id: NonNegativeInt | None = None
    """Token of padding; by default ``[PAD]``."""

    def source(self) -> BatchSource:
        padding = self.pad_id
        if padding is None:
            padding = self.vocabulary().special(_PADDING)
        return self.ordered(DocumentSamples(open_folders(self.folders), self, padding))


class DocumentSamples:
    """Documents as tokens, padded, with classes of their sentences.

    The vendor's data processor tells padding from sentences by the position ``pad_id``, so that
    with 0 the first sentence never counts; here every sentence that fits counts.
    """

    def __init__(self, rows: CsvRows, config: BertSumCSVDataProcessor, padding: int) -> None:
        self.name = rows.name
        self._rows = rows
        self._config = config
        self._padding = padding

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: np.ndarray) -> Batch:
        config, rows = self._config, self._rows.read(indices)
        samples = [self._sample(row) for row in rows]
        length, most = config.max_sequence_length, config.max_cls_tokens
        tokens = padded([sample[0] for sample in samples], length, self._padding)
        cls_weights = padded([[1] * len(sample[1]) for sample in samples], most, 0)
        return {
            "input_ids": tokens,
            "attention_mask": (tokens != self._padding).long(),
            "token_type_ids": padded([sample[2] for sample in samples], length, 0),
            "labels": padded([sample[1] for sample in samples], most, 0),
            "cls_indices": padded([sample[3] for sample in samples], most, 0),
            "cls_weights": cls_weights.float(),
        }

    def _sample(self, row: Mapping[str, str]) -> tuple[list[int], ...]:
        """Return tokens, labels, segments and positions of a row, without sentences cut off."""
        columns = [numbers(text, self.name) for text in row.values()]
        if len(columns) != 4 or len(columns[1]) != len(columns[3]):
            raise DataError(
                "a document must have tokens, labels, segments, and as many positions as labels",
                code="document-damaged",
                where=self.name,
                value=f"columns of {', '.join(str(len(column)) for column in columns)} numbers",
            )
        tokens, labels, segments, positions = columns
        length, most = self._config.max_sequence_length, self._config.max_cls_tokens
        whole = [place for place, position in enumerate(positions) if 0 <= position < length][:most]
        labels, positions = ([column[p] for p in whole] for column in (labels, positions))
        return tokens[:length], labels, segments[:length], positions


def read_classes(path: Path) -> dict[str, int]:
    """Return the numbers of classes by name; DataError if the file cannot be read."""
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): int(value) for name, value in classes.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            "the classes cannot be read",
            code="classes-not-readable",
            where=str(path),
            value=error,
            rule="a JSON mapping of names to numbers",
        ) from error
