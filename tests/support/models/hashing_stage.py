"""A stage without a model, whose scores depend on all tokens of a sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from appliance.serving.sampling import draw
from waferstream.core.serving import CacheLostError, Part, Request

VOCABULARY = 8


def scores_after(tokens: Sequence[int], model: str = "") -> np.ndarray:
    """Return scores that any other token before would change."""
    content = f"{model}{list(tokens)}".encode()
    digest = hashlib.blake2b(content, digest_size=VOCABULARY).digest()
    return np.frombuffer(digest, np.uint8).astype(np.float32) / 64


class HashingStage:
    """Keeps the tokens of sequences, and fails where a real one would compute nonsense.

    Args:
        memory: The most tokens that sequences may have together.
        losses: Numbers of the calls of ``extend`` that find the cache lost.
        model: The name of the function.
    """

    def __init__(self, memory: int = 10**9, losses: Sequence[int] = (), model: str = "") -> None:
        self._model = model
        self.sequences: dict[str, list[int]] = {}
        self.num_calls = 0
        self.num_tokens = 0
        self._memory = memory
        self._losses = frozenset(losses)

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        self.num_calls += 1
        if self.num_calls - 1 in self._losses:
            self.sequences.clear()
            raise CacheLostError
        rows = []
        for part in parts:
            held = self.sequences.setdefault(part.sequence, [])
            assert part.tokens
            assert part.start <= len(held)
            held[part.start :] = part.tokens
            ends = range(len(held) - part.num_scores + 1, len(held) + 1)
            rows += [scores_after(held[:end], self._model) for end in ends]
            self.num_tokens += len(part.tokens)
        assert sum(map(len, self.sequences.values())) <= self._memory
        return torch.from_numpy(np.array(rows, np.float32).reshape(-1, VOCABULARY))

    def copy(self, source: str, target: str, tokens: int) -> None:
        assert target not in self.sequences
        assert tokens <= len(self.sequences[source])
        self.sequences[target] = self.sequences[source][:tokens]

    def forget(self, sequence: str) -> None:
        self.sequences.pop(sequence, None)


def answer_alone(asked: Request) -> list[int]:
    """The answer by a loop over all tokens."""
    tokens = list(asked.prompt)
    while len(tokens) < len(asked.prompt) + asked.max_tokens:
        token = draw(scores_after(tokens), asked, tokens).token
        if token in asked.ends:
            break
        tokens.append(token)
    return tokens[len(asked.prompt) :]
