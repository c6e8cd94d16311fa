"""Requests for texts, as OpenAI's clients send them.

What we do not compute is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from appliance.serving.sampling import check_tokens
from waferstream.core.rng import stream_key
from waferstream.core.serving import Sampling, Sharing
from waferstream.serving.accounts.account import AskedTier
from waferstream.serving.models.text import Text
from waferstream.serving.questions import Question

Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Token = Annotated[int, Field(ge=0, strict=True)]

MOST_CHOICES = 128
"""Answers that one request may ask for."""


class StreamOptions(BaseModel):
    """How an answer is streamed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_usage: bool = False
    continuous_usage_stats: bool = False
    """Whether every chunk has the usage so far, as vLLM's have."""


class Asked(BaseModel):
    """What every request may ask for; a key that is not here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Count | None = None
    seed: int | None = None
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    """Whether an answer goes on behind tokens that end texts, as vLLM's do."""
    user: str | None = None
    service_tier: AskedTier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "1h"] | None = None
    deadline_s: Annotated[float, Field(gt=0)] | None = None

    @property
    def num_choices(self) -> int:
        """The answers to each prompt."""
        return self.n or 1

    @property
    def _stops(self) -> list[str]:
        """The texts that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def _sharing(self) -> Sharing:
        """With whom the keys and values of the prompt are shared."""
        life_s = 3600.0 if self.prompt_cache_retention == "1h" else 300.0
        return Sharing(self.prompt_cache_key or "", life_s)

    def _samplings(self) -> list[Sampling]:
        """Return how the tokens of every choice are drawn."""
        return [self._sampling(seed) for seed in _seeds(self.seed, self.num_choices)]

    def _sampling(self, seed: int) -> Sampling:
        return Sampling(
            seed,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            top_k=self.top_k,
            bias=tuple((self.logit_bias or {}).items()),
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            min_tokens=self.min_tokens or 0,
        )


def _seeds(given: int | None, count: int) -> list[int]:
    """Return the seeds of choices: the first is that of the request, drawn if none is given."""
    seed = secrets.randbits(31) if given is None else given
    return [seed, *(stream_key(seed, "choice", number) for number in range(1, count))]


T = TypeVar("T")
Several = Annotated[list[T], Field(min_length=1, max_length=MOST_CHOICES)]
Tokens = Annotated[list[Token], Field(min_length=1)]


def _with_one_fault(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Return prompts, checked; one fault is told, not one for each kind of prompts."""
    try:
        return check(value)
    except ValidationError as error:
        kinds = f"a text, tokens, or a list of up to {MOST_CHOICES} of either"
        raise ValueError(f"must be {kinds}, none of which is empty") from error


Prompts = Annotated[str | Several[str] | Tokens | Several[Tokens], WrapValidator(_with_one_fault)]


class CompletionRequest(Asked):
    """The body of ``POST /v1/completions``."""

    prompt: Prompts
    max_tokens: Count | None = 16
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: bool | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo and logprobs exclude each other: prompts have no logprobs here")
        if len(self._prompts) * self.num_choices > MOST_CHOICES:
            raise ValueError(f"a request may ask for {MOST_CHOICES} answers")
        return self

    @property
    def _prompts(self) -> Sequence[str | Sequence[int]]:
        """The prompts: texts, or tokens."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    def questions(self, text: Text) -> list[Question]:
        """Return what is asked: all choices of a prompt, then those of the next one."""
        found = []
        for prompt in self._prompts:
            if isinstance(prompt, str):
                tokens, shown = text.encode(prompt), prompt
            else:
                check_tokens(prompt, text.vocabulary, "prompt")
                tokens, shown = tuple(prompt), text.decode(prompt)
            found += [
                Question(
                    tokens,
                    sampling,
                    self.max_tokens,
                    self._stops,
                    self.logprobs,
                    shown if self.echo else "",
                    sharing=self._sharing,
                    deadline_s=self.deadline_s,
                    ignores_ends=bool(self.ignore_eos),
                )
                for sampling in self._samplings()
            ]
        return found
