"""A request on its way: the tokens of its sequence, and how many of them are cached."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from appliance.serving.cache_directory import BLOCK, block_key
from appliance.serving.guide import Guide
from appliance.serving.speculation import Lookup, Prediction
from waferstream.core.serving import Request

LONGEST_PROPOSAL = 8
"""The most tokens that are proposed for a sequence at a time."""


@dataclass(eq=False)
class Sequence:
    """A request that waits or runs.

    Attributes:
        request: What is asked.
        arrival: Its number in the order in which requests came.
        ends_s: When its answer must be complete, by the clock of the batcher.
        tokens: Those of the prompt and of the answer so far.
        cache: Its name in the stage while it runs.
        num_cached: The first tokens, which the stage has.
        found: The tokens of the prompt that it began with; None before it has run.
        guide: What keeps its answer to a grammar, if anything.
    """

    request: Request
    arrival: int
    ends_s: float = math.inf
    guide: Guide | None = None
    tokens: list[int] = field(init=False)
    cache: str | None = None
    num_cached: int = 0
    found: int | None = None
    _keys: list[bytes] = field(default_factory=list)
    _lookup: Lookup = field(default_factory=Lookup)
    _prediction: Prediction = field(init=False)
    _reach: int = 3  # tokens that are proposed

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        self._prediction = Prediction(self.request.prediction)

    @property
    def longest(self) -> int:
        """The tokens that it may have in the end."""
        return len(self.request.prompt) + self.request.max_tokens

    @property
    def has_run(self) -> bool:
        """Whether it was among those that run."""
        return self.found is not None

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among those that need memory: the least comes first."""
        return -self.request.priority, self.arrival

    @property
    def is_whole(self) -> bool:
        """Whether its guide lets nothing follow."""
        return self.guide is not None and self.guide.is_complete

    @property
    def num_new(self) -> int:
        """The tokens that are not cached yet."""
        return len(self.tokens) - self.num_cached

    @property
    def is_answering(self) -> bool:
        """Whether all tokens but the last are cached."""
        return self.num_new == 1

    def keys(self, tokens: int) -> list[bytes]:
        """Return the keys of the whole blocks of the first tokens; none if they are not shared."""
        request = self.request
        if not request.sharing.life_s:
            return []
        for end in range((len(self._keys) + 1) * BLOCK, tokens + 1, BLOCK):
            root = block_key(b"", request.tenant, request.sharing.key)
            before = self._keys[-1] if self._keys else root
            self._keys.append(block_key(before, *self.tokens[end - BLOCK : end]))
        return self._keys[: tokens // BLOCK]

    def append(self, token: int) -> None:
        """Take the next token of the answer."""
        self.tokens.append(token)
        self._prediction.follow(token)
        if self.guide is not None:
            self.guide.take(token)

    @property
    def reach(self) -> int:
        """The tokens that are worth proposing: as many as were right lately, and some more."""
        return min(self._reach, self.longest - len(self.tokens) - 1)

    def predict(self, most: int) -> tuple[int, ...]:
        """Return the tokens that its request predicts next."""
        return self._prediction.propose(most)

    def look_up(self, most: int) -> tuple[int, ...]:
        """Return tokens that followed its last ones before."""
        return self._lookup.propose(self.tokens, most)

    def learn(self, num_proposed: int, num_right: int) -> None:
        """Take how many proposed tokens have come."""
        if num_proposed:
            self._reach = min(2 * num_right + 1, LONGEST_PROPOSAL)
