"""Pairs of sequences for encoder-decoder models: spans that are left out, and translations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from modelzoo.data.files.csv_file import listed_groups
from modelzoo.data.files.folders import FolderProcessor, Folders
from modelzoo.data.files.token_lines import TokenLines
from modelzoo.data.language.vocabulary import Vocabulary
from modelzoo.data.order import Draw, draws
from modelzoo.data.source import (
    EarlierKey,
    OrderedBatches,
    RedrawnBatches,
    located,
    padded,
    starts_of_parts,
)
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource

_NOISE_SHARE, _TOKENS_PER_SPAN = 0.15, 3
"""Share of tokens that are left out, and the mean of a span (Raffel et al. 2020, T5, 3.1.4)."""


class PairProcessor(FolderProcessor):
    """Keys of both data processors, of text files with a document of tokens in each line."""

    data_dir: Folders = Field(alias="src_data_dir")
    """Folders with text files and their list, ``meta.dat``."""
    src_vocab_file: str
    """A token in each line; its number is that of the line. ``$NAME`` is replaced."""
    src_max_sequence_length: PositiveInt
    tgt_max_sequence_length: PositiveInt
    shuffle: bool = True
    extra_ids: NonNegativeInt = 0
    """Tokens after those of the vocabulary, which stand for spans that are left out."""

    oov_token: str = "<unk>"
    sos_token: str = "<s>"
    eos_token: str = "</s>"
    pad_token: str = "<pad>"
    input_pad_id: NonNegativeInt | None = None
    """Token of padding; by default ``pad_token``."""
    labels_pad_id: NonNegativeInt | None = None
    """Label of padding, which does not count; by default ``pad_token``."""

    pack_sequences: Literal[False] = False
    dynamic_loss_weight: Literal[False] = False
    buckets: None = None
    shuffle_buffer: PositiveInt | None = None
    """Accepted for compatibility: a shuffle is one of the whole dataset."""
    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool = True
    """For the processes of the real machine's input workers; no effect here."""

    vocab_size: EarlierKey = None
    tgt_vocab_file: EarlierKey = None
    tgt_data_dir: EarlierKey = None

    @property
    @abstractmethod
    def files_per_line(self) -> int:
        """Names of files in each line of ``meta.dat``."""

    @property
    def groups(self) -> list[tuple[tuple[Path, ...], int]]:
        """Files that belong together, with their numbers of lines."""
        folders = [Path(folder).expanduser() for folder in self.folders]
        return [each for folder in folders for each in listed_groups(folder, self.files_per_line)]

    def count_files(self) -> int:
        return sum(len(paths) for paths, _ in self.groups)

    def lines(self, place: int) -> TokenLines:
        """Find the lines of the files at a place of each group."""
        return TokenLines([(paths[place], rows) for paths, rows in self.groups])


class PairFormat:
    """Sources and targets as the inputs of an encoder-decoder model, padded."""

    def __init__(self, config: PairProcessor) -> None:
        self.vocabulary = vocabulary = Vocabulary(config.src_vocab_file, config.oov_token)
        self._lengths = config.src_max_sequence_length, config.tgt_max_sequence_length
        self._first = vocabulary.special(config.sos_token)
        self._end = vocabulary.special(config.eos_token)
        padding = vocabulary.special(config.pad_token)
        self._input_pad, self._label_pad = (
            padding if given is None else given
            for given in (config.input_pad_id, config.labels_pad_id)
        )

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of tokens."""
        return list(map(self.vocabulary.number, words))

    def batch(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
        """Return the inputs of pairs; targets begin and end with tokens of their own."""
        length, target_length = self._lengths
        sources = [list(source) for source, _ in pairs]
        read = [[self._first, *target] for _, target in pairs]
        labels = [[*target, self._end] for _, target in pairs]
        return {
            "input_ids": padded(sources, length, self._input_pad),
            "attention_mask": padded([[1] * len(each) for each in sources], length, 0),
            "decoder_input_ids": padded(read, target_length, self._input_pad),
            "decoder_attention_mask": padded([[1] * len(each) for each in read], target_length, 0),
            "labels": padded(labels, target_length, self._label_pad),
        }


class TransformerDynamicDataProcessor(PairProcessor):
    """Translations: two text files with as many lines; those that are too long are left out."""

    @property
    def files_per_line(self) -> int:
        return 2

    def source(self) -> BatchSource:
        name = ", ".join(self.folders)
        lines = self.lines(0), self.lines(1)
        lengths = self.src_max_sequence_length, self.tgt_max_sequence_length
        return self.ordered(Translations(lines, lengths, PairFormat(self), name))


class Translations:
    """Pairs of lines whose tokens leave room for one more."""

    def __init__(
        self,
        lines: tuple[TokenLines, TokenLines],
        lengths: tuple[int, int],
        form: PairFormat,
        name: str,
    ) -> None:
        self.name = name
        self._lines, self._form = lines, form
        fits = [
            (each.num_words > 0) & (each.num_words < length)
            for each, length in zip(lines, lengths, strict=True)
        ]
        (self._fitting,) = np.nonzero(fits[0] & fits[1])

    def __len__(self) -> int:
        return len(self._fitting)

    def read(self, indices: np.ndarray) -> Batch:
        source, target = (
            [self._form.numbers(lines.read(line)) for line in self._fitting[indices].tolist()]
            for lines in self._lines
        )
        return self._form.batch(list(zip(source, target, strict=True)))


class T5DynamicDataProcessor(PairProcessor):
    """Documents, cut into sequences of which spans are left out, anew in each epoch.

    Every part of a long document is read, where the vendor's takes 65,536 tokens of it at random.
    """

    @property
    def files_per_line(self) -> int:
        return 1

    def source(self) -> BatchSource:
        length, target_length = longest_sequence(self.src_max_sequence_length)
        if target_length > self.tgt_max_sequence_length:
            raise DataError(
                "tgt_max_sequence_length must hold the spans that are left out of a source",
                code="target-too-long",
                where=", ".join(self.folders),
                value=f"tgt_max_sequence_length {self.tgt_max_sequence_length}",
                rule=f"at least {target_length}",
            )
        sequences = Sequences(self.lines(0), length, ", ".join(self.folders))
        return SpanBatches(self.ordered(sequences), sequences, self)


class Sequences:
    """Documents as sequences of at most ``length`` words, by number."""

    def __init__(self, lines: TokenLines, length: int, name: str) -> None:
        self.name = name
        self._lines, self._length = lines, length
        self._starts = starts_of_parts((-(-lines.num_words // length)).tolist())

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> Batch:
        """Return the numbers of samples; spans are left out when their places are known."""
        return {"numbers": torch.from_numpy(indices)}

    def words(self, number: int) -> list[str]:
        """Return the words of a sequence."""
        (line,), (part,) = located(self._starts, np.array([number]))
        start = int(part) * self._length
        return self._lines.read(int(line))[start : start + self._length]


class SpanBatches(RedrawnBatches):
    """Batches of sequences without spans, and of the spans that were left out."""

    def __init__(
        self, ordered: OrderedBatches, sequences: Sequences, config: T5DynamicDataProcessor
    ) -> None:
        super().__init__(ordered)
        self._sequences, self._form = sequences, PairFormat(config)
        self._last = self._form.vocabulary.size + config.extra_ids - 1
        self._seed = config.shuffle_seed

    def batch(self, step: int) -> Batch:
        numbers = self.ordered.batch(step)["numbers"].tolist()
        pairs = []
        for number, place in zip(numbers, self.ordered.places(step).tolist(), strict=True):
            tokens = np.array(self._form.numbers(self._sequences.words(number)))
            is_left_out = spans(len(tokens), draws(self._seed, "span", place))
            source = with_sentinels(tokens, is_left_out, self._last)
            target = with_sentinels(tokens, ~is_left_out, self._last)
            pairs.append((source.tolist(), target.tolist()))
        return self._form.batch(pairs)


def longest_sequence(source_length: int) -> tuple[int, int]:
    """Return the most tokens whose source fits, and the length of the target with its end."""

    def lengths(tokens: int) -> tuple[int, int]:
        left_out = round(tokens * _NOISE_SHARE)
        num_spans = round(left_out / _TOKENS_PER_SPAN)
        return tokens - left_out + num_spans + 1, left_out + num_spans + 1

    tokens = source_length
    while lengths(tokens)[0] < source_length:
        tokens += 1
    return tokens, lengths(tokens)[1]


def spans(length: int, draw: Draw) -> np.ndarray:
    """Return whether each token is left out, in spans of random lengths at random places.

    As published, spans that stay and spans that do not alternate: the first token stays, and the
    last one does not. Numbers of tokens and spans depend on the length alone.
    """
    longer = max(length, 2)
    left_out = min(max(round(longer * _NOISE_SHARE), 1), longer - 1)
    num_spans = max(round(left_out / _TOKENS_PER_SPAN), 1)
    hidden = _parts(left_out, num_spans, draw)
    lengths = np.stack([_parts(longer - left_out, num_spans, draw), hidden], axis=1).flatten()
    return np.repeat(np.tile([False, True], num_spans), lengths)[:length]


def _parts(total: int, count: int, draw: Draw) -> np.ndarray:
    """Return ``count`` positive numbers of a sum; all ways are equally likely."""
    order = np.argsort([draw() for _ in range(total - 1)], kind="stable")
    cuts = np.sort(order[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]).astype(np.int64))


def with_sentinels(tokens: np.ndarray, is_left_out: np.ndarray, last: int) -> np.ndarray:
    """Return tokens with one for each span that is left out: ``last``, then those before it."""
    goes_on = is_left_out & np.concatenate([[False], is_left_out[:-1]])
    begins = is_left_out & ~goes_on
    found: np.ndarray = np.where(begins, last + 1 - np.cumsum(begins), tokens)[~goes_on]
    return found
