"""Tokens that may come next, which a model verifies in one part.

A proposal changes no answer: each token is drawn from the model's own scores by the number of its
position, and the proposed ones behind it are used while they are those that are drawn. Proposals
come from what followed the same tokens before (prompt lookup), or from the predicted output of the
request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

NGRAM = 3
"""Tokens by which a place is found again."""


class Lookup:
    """What has followed the last tokens of one sequence before."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_known = NGRAM

    def propose(self, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """Return what followed the newest earlier occurrence of the last tokens."""
        for end in range(self._num_known, len(tokens)):
            self._ends[tuple(tokens[end - NGRAM : end])] = end
        self._num_known = max(self._num_known, len(tokens))
        end = self._ends.get(tuple(tokens[-NGRAM:]), len(tokens))
        return tuple(tokens[end : end + most])


class Prediction:
    """The predicted output of a request, and the place in it that its answer has come to.

    Where the answer goes another way, it is found again by its last tokens, further on.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.num_accepted = 0
        """Tokens of the answer that were the next ones of the prediction."""
        self._tokens = tokens
        self._place: int | None = 0  # None where the answer goes another way
        self._least = 0  # the place where it did
        self._recent: tuple[int, ...] = ()

    @cached_property
    def _ends(self) -> dict[tuple[int, ...], list[int]]:
        """The places after all occurrences of the tokens by which a place is found again."""
        found: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for end in range(NGRAM, len(self._tokens) + 1):
            found[tuple(self._tokens[end - NGRAM : end])].append(end)
        return found

    @property
    def num_rejected(self) -> int:
        """Tokens of the prediction that the answer does not have."""
        return len(self._tokens) - self.num_accepted

    def propose(self, most: int) -> tuple[int, ...]:
        """Return the tokens that come next in the prediction; none where it does not hold."""
        return () if self._place is None else tuple(self._tokens[self._place : self._place + most])

    def follow(self, token: int) -> None:
        """Take the next token of the answer."""
        self._recent = (*self._recent, token)[-NGRAM:]
        if self.propose(1) == (token,):
            assert self._place is not None
            self._place += 1
            self.num_accepted += 1
            return
        if self._place is not None:
            self._least, self._place = self._place, None
        ends = self._ends.get(self._recent, [])
        found = bisect_left(ends, self._least + NGRAM)
        if found < len(ends):
            self._place = ends[found]
