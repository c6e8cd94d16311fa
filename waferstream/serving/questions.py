"""What is asked of a model and what comes back, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from waferstream.core.serving import AnswerFailed, Sampling, Sharing
from waferstream.serving.clock import EmulatedTime
from waferstream.serving.formats.reading import PlainReader, Reader, Said

EndReason = Literal["stop", "length", "tool_calls"]
"""Why an answer ends: by itself or at a stop, at its limit of tokens, or with calls of tools."""


@dataclass(frozen=True)
class Question:
    """What an answer is asked for.

    Attributes:
        tokens: The prompt.
        sampling: How tokens are drawn.
        max_tokens: The most tokens; None for what the context leaves.
        stops: Texts that end the answer, if it says them: not as a thought, nor in a call.
        num_best: The likeliest tokens that are told beside each token; None tells no tokens.
        echo: Text that is told before the answer.
        grammar: What the answer must be, in the Lark syntax of llguidance.
        sharing: With whom keys and values of the prompt are shared.
        prediction: Tokens that the answer may have.
        deadline_s: The longest time until the answer is complete.
        make_reader: Makes what finds thoughts and calls in the answer.
        ignores_ends: Whether it goes on behind tokens that end texts.
    """

    tokens: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None = None
    stops: Sequence[str] = ()
    num_best: int | None = None
    echo: str = ""
    grammar: str | None = None
    sharing: Sharing = field(default_factory=Sharing)
    prediction: tuple[int, ...] = ()
    deadline_s: float | None = None
    make_reader: Callable[[], Reader] = PlainReader
    ignores_ends: bool = False


@dataclass(frozen=True)
class ToldToken:
    """A token of an answer with the logarithm of its probability."""

    text: bytes
    logprob: float
    best: tuple[tuple[bytes, float], ...]
    """The likeliest ones in its place, the likeliest first."""
    offset: int
    """The characters of the answer before it."""
    is_thought: bool
    """Whether it is of a thought that is told beside the answer."""


@dataclass(frozen=True)
class Piece:
    """A part of an answer, and at its end what the answer was."""

    said: Said
    tokens: tuple[ToldToken, ...] = ()
    """The tokens that begin in it, if they are told."""
    num_tokens: int = 0
    """Those of the answer so far."""
    end: End | None = None


@dataclass(frozen=True)
class End:
    """The end of an answer."""

    reason: EndReason
    prompt_tokens: int
    completion_tokens: int
    emulated: EmulatedTime
    measured_s: float
    seed: int
    cached_tokens: int
    """Of the prompt, those that another request had left in the cache."""
    accepted_tokens: int
    """Of the prediction, those that the answer has."""
    rejected_tokens: int
    """Of the prediction, all others."""
    thought_tokens: int
    """Of the answer, those of thoughts."""


Heard = Callable[[Piece | AnswerFailed], None]
"""What the pieces of an answer are given to, in another thread."""


class Watcher:
    """What is told of all answers, in the thread of the engine; this one does nothing."""

    def first_token(self, prompt: int, cached: int, waited_s: float) -> None:
        """Take note of the first token after a prompt, of which tokens were in the cache."""

    def next_token(self, waited_s: float) -> None:
        """Take note of another token."""

    def ended(self, end: End) -> None:
        """Take note of the end of an answer."""
