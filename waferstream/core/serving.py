"""A request for tokens, and what comes back, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from waferstream.core.errors import WaferStreamError

Tier = Literal["priority", "default", "flex"]
"""Which requests come first; the names are those of the vendor's service."""

FinishReason = Literal["stop", "length"]
"""Why an answer ends: at a token that ends texts, or at its limit of tokens."""


@dataclass(frozen=True)
class Usage:
    """The tokens of an answer."""

    prompt_tokens: int
    cached_tokens: int
    """Of the prompt, those whose keys and values were there already."""
    completion_tokens: int


@dataclass(frozen=True)
class Terms:
    """In whose name an answer is computed."""

    tenant: str = ""
    tier: Tier = "default"
    reserved_tokens_per_s: float = 0.0
    """What the tenant has of the machine whatever others ask, in the tier priority."""
    settle: Callable[[Usage], None] = lambda _: None
    """Gets what the answer has used at each of its ends, of which the first counts."""


ANYBODY = Terms()
"""The terms where nobody is billed."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn from scores.

    Attributes:
        seed: With the position of a token it states its random number, and nothing else does.
        temperature: Divides the scores; 0 takes the best one.
        top_p: Share of probability that the best tokens, which are drawn from, have together.
        top_k: The most tokens that are drawn from; None for all.
        bias: Tokens and what is added to their scores.
        frequency_penalty: Taken from the score of a token for every time that the answer has it.
        presence_penalty: Taken from the score of a token that the answer has.
        min_tokens: The tokens before which no answer ends by itself.
    """

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    bias: tuple[tuple[int, float], ...] = ()
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_tokens: int = 0


@dataclass(frozen=True)
class Sharing:
    """With whom the keys and values of the first tokens are shared: requests of the same tenant.

    Attributes:
        key: Only requests that state the same share.
        life_s: How long they are kept after their last use; 0 shares none.
    """

    key: str = ""
    life_s: float = 300.0


@dataclass(frozen=True)
class Request:
    """Tokens to continue."""

    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    ends: frozenset[int] = field(default_factory=frozenset)
    """Tokens that end an answer, and are not part of it."""
    tenant: str = ""
    """Who asks. Tenants share steps fairly, and no keys and values."""
    priority: int = 0
    """Those of a higher one come first, and take the memory of others."""
    reserved_tokens_per_s: float = 0.0
    """The tokens of its tenant that others cannot take, if it has some reserved."""
    deadline_s: float | None = None
    """The longest time until the answer is complete; else it fails."""
    sharing: Sharing = field(default_factory=Sharing)
    grammar: str | None = None
    """What the answer must be, as its guide reads it."""
    prediction: tuple[int, ...] = ()
    """Tokens that the answer may have, which makes it faster and changes nothing else."""
    num_best: int = 0
    """The number of likeliest tokens that are told beside each token drawn."""


@dataclass(frozen=True)
class Part:
    """Tokens of one sequence that follow those it has in the cache."""

    sequence: str
    start: int
    """The position of the first one, counted from 0; what the cache has from there is replaced."""
    tokens: tuple[int, ...]
    num_scores: int = 1
    """The scores after so many of the last tokens are asked for."""


@dataclass(frozen=True)
class PromptRead:
    """The beginning of an answer."""

    request: str
    cached_tokens: int
    """The first tokens of the prompt that another request has left in the cache."""


@dataclass(frozen=True)
class TokenDrawn:
    """A new token of an answer."""

    request: str
    token: int
    logprob: float
    """The natural logarithm of its probability by the model, whatever the sampling."""
    best: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens in its place, and their logarithms; the likeliest first."""


@dataclass(frozen=True)
class AnswerEnded:
    """The end of an answer."""

    request: str
    reason: FinishReason


@dataclass(frozen=True)
class AnswerFailed:
    """The end of an answer by a failure."""

    request: str
    error: WaferStreamError


Event = PromptRead | TokenDrawn | AnswerEnded | AnswerFailed


@dataclass(frozen=True)
class Load:
    """What an engine has to do at a moment."""

    running: int
    """Sequences that are computed."""
    waiting: int
    """Sequences that wait for room."""
    tokens: int
    """Tokens whose keys and values are held."""


class CacheLostError(Exception):
    """A stage was replaced: it has no sequence any more, and all must be computed again."""
