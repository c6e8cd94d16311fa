"""Masked language modelling: which tokens of a sequence are hidden, and by what.

Devlin et al. 2019, BERT, section 3.1: a share of the tokens is chosen; 80 % of those become the
mask token, 10 % a random token, and 10 % stay. Every choice is a hash of the seed and the place in
the endless stream of samples, so each epoch masks other tokens, and a resumed run the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from modelzoo.data.order import mix64
from modelzoo.data.source import OrderedBatches, RedrawnBatches
from waferstream.core.rng import stream_key
from waferstream.workload.data import Batch

_MASKED, _MASKED_OR_RANDOM = 0.8, 0.9

WORDS = "words"
"""Feature of unmasked samples: the word that each token belongs to, -1 for those never masked."""


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and replaced."""

    share: float
    """Share of a sequence's tokens that is chosen, special tokens counted."""
    most: int
    """Chosen tokens of a sequence, at most."""
    mask_token: int
    replacements: np.ndarray
    """Tokens of which a random one is drawn."""
    label_of_others: int
    """Label of tokens that are not chosen, if labels are not gathered."""
    gathers: bool
    """Whether labels are those of the chosen tokens alone, with their positions."""


class MaskedBatches(RedrawnBatches):
    """Batches of whole sequences, masked anew in each epoch."""

    def __init__(self, whole: OrderedBatches, masking: Masking, seed: int) -> None:
        super().__init__(whole)
        self._masking = masking
        self._key = np.uint64(stream_key(seed, "mask"))

    def batch(self, step: int) -> Batch:
        batch = dict(self.ordered.batch(step))
        words = batch.pop(WORDS).numpy()
        tokens = batch["input_ids"].numpy().copy()
        lengths = batch["attention_mask"].sum(1).numpy()
        counters = self.ordered.places(step)[:, None] * tokens.shape[1] + np.arange(tokens.shape[1])
        first = mix64(mix64(counters.astype(np.uint64)) ^ self._key)
        second = mix64(first ^ self._key)
        chosen = [
            self._chosen(row, order, int(length))
            for row, order, length in zip(words, first.argsort(axis=1), lengths, strict=True)
        ]
        targets = self._targets(tokens, chosen)
        for row, positions in enumerate(chosen):
            tokens[row, positions] = self._replaced(tokens[row, positions], second[row, positions])
        return batch | {"input_ids": torch.from_numpy(tokens), **targets}

    def _chosen(self, words: np.ndarray, order: np.ndarray, length: int) -> np.ndarray:
        """Return the positions of whole words, in random order until there are enough."""
        masking = self._masking
        wanted = min(masking.most, max(1, round(length * masking.share)))
        chosen: list[int] = []
        seen: set[int] = {-1}
        for token in order:
            if len(chosen) >= wanted:
                break
            if (word := int(words[token])) in seen:
                continue
            seen.add(word)
            positions = np.flatnonzero(words == word)
            if len(chosen) + len(positions) <= masking.most:
                chosen.extend(positions.tolist())
        return np.sort(np.array(chosen, dtype=np.int64))

    def _replaced(self, tokens: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Return the replacements of chosen tokens."""
        draws = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53
        pool = self._masking.replacements
        drawn = pool[(mix64(hashes ^ self._key) % np.uint64(len(pool))).astype(np.int64)]
        others = np.where(draws < _MASKED_OR_RANDOM, drawn, tokens)
        replaced: np.ndarray = np.where(draws < _MASKED, self._masking.mask_token, others)
        return replaced

    def _targets(self, tokens: np.ndarray, chosen: list[np.ndarray]) -> Batch:
        """Return labels, which of them count, and their positions if they are gathered."""
        gathers = self._masking.gathers
        shape = (len(tokens), self._masking.most) if gathers else tokens.shape
        other = 0 if gathers else self._masking.label_of_others
        labels = np.full(shape, other, dtype=np.int64)
        counted, places = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, positions in enumerate(chosen):
            columns = np.arange(len(positions)) if gathers else positions
            labels[row, columns] = tokens[row, positions]
            counted[row, columns], places[row, columns] = 1, positions
        found = {"labels": labels, "masked_lm_mask": counted}
        if gathers:
            found["masked_lm_positions"] = places
        return {name: torch.from_numpy(values) for name, values in found.items()}
