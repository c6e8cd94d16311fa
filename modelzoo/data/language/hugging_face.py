"""Texts or token ids of a dataset of Hugging Face on the disk, joined and cut into sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt

from modelzoo.data.files.arrow_folder import read_column
from modelzoo.data.language.text import TextWindows
from modelzoo.data.source import OrderedBatches
from waferstream.core.errors import DataError
from waferstream.preparation.tokenizer import check_fits, open_tokenizer
from waferstream.workload.data import BatchSource, DataProcessor

_NUM_TEXTS = 1000
"""Texts that are tokenized at once."""


class HuggingFaceDatasetProcessor(DataProcessor):
    """Next-token prediction on a dataset that ``save_to_disk`` wrote.

    Texts are tokenized when the dataset is opened: of more than some 100 MB,
    ``waferstream data preprocess`` makes files that open at once.
    """

    path: str
    """The folder."""

    split: str | None = None
    """Of a dataset with several splits."""

    column: str = "text"
    """Texts, or lists of token ids, which are used as they are."""

    tokenizer: str | None = None
    """Folder or file of the tokenizer of texts, or ``bytes``; its end token ends each text."""

    end_token: str | None = None
    """In place of the end token that the tokenizer names."""

    vocab_size: PositiveInt | None = None
    """That of the model by default: no token may be beyond it."""

    max_sequence_length: PositiveInt

    shuffle: bool = True

    def source(self) -> BatchSource:
        column = read_column(Path(self.path).expanduser(), self.split, self.column)
        tokens = self._tokens(column)
        name = f"{self.path}, column {self.column}"
        return OrderedBatches(
            TextWindows(tokens, self.max_sequence_length, name, unit="tokens"),
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )

    def _tokens(self, column: Any) -> np.ndarray:
        """Return all tokens of a column; DataError if it has neither texts nor ids."""
        kind = str(column.type)
        if kind in ("string", "large_string") and self.tokenizer is not None:
            return self._encoded(column, self.tokenizer)
        is_list = kind.startswith(("list<", "large_list<", "fixed_size_list<"))
        if is_list and "int" in str(column.type.value_type) and self.tokenizer is None:
            return self._checked(column.combine_chunks().flatten())
        raise DataError(
            "the column must have texts, with a tokenizer, or lists of token ids, without one",
            code="dataset-column-of-other-type",
            where=f"{self.path}, column {self.column}",
            value=f"{kind}, tokenizer {self.tokenizer}",
            remedy="name another column, or set or remove the key tokenizer",
        )

    def _encoded(self, texts: Any, place: str) -> np.ndarray:
        tokenizer = open_tokenizer(place, self.end_token)
        check_fits(tokenizer, place, self.vocab_size)
        parts = [np.empty(0, np.int32)]
        for start in range(0, len(texts), _NUM_TEXTS):
            some = [text for text in texts.slice(start, _NUM_TEXTS).to_pylist() if text]
            parts += [np.array([*ids, tokenizer.end], np.int32) for ids in tokenizer.encode(some)]
        return np.concatenate(parts)

    def _checked(self, ids: Any) -> np.ndarray:
        """Return token ids; DataError if one is missing or beyond the vocabulary."""
        tokens: np.ndarray = ids.to_numpy(zero_copy_only=False)
        limit = self.vocab_size or np.iinfo(np.int32).max
        if ids.null_count or (tokens.size and not 0 <= tokens.min() <= tokens.max() < limit):
            raise DataError(
                "token ids must be in the vocabulary",
                code="token-outside-vocabulary",
                where=f"{self.path}, column {self.column}",
                value=f"{tokens.min()} to {tokens.max()}, {ids.null_count} missing",
                rule=f"from 0 to {limit - 1}",
            )
        return tokens
