"""What a service holds at most."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.errors import ConfigError
from waferstream.core.serving import Request


@dataclass(frozen=True)
class Limits:
    """What a step and the cache may hold."""

    context: int
    """The most tokens of a sequence."""
    cache_tokens: int
    """The most tokens of all sequences in the cache."""
    step_tokens: int = 256
    """The most tokens of a step, and so of sequences that run; longer prompts take several."""
    proposed_step_tokens: int = 16
    """Tokens to which proposed ones may fill a step: it takes little more time than with one, as
    weights are read once."""
    page: int = 1
    """Tokens by which the memory of a sequence grows."""
    waiting: int = 2000
    """The most requests that wait."""
    waiting_of_tenant: int = 1000
    """The most requests of one tenant that wait."""

    def check(self, request: Request) -> None:
        """Raise ConfigError for a request that has no token, asks for none, or does not fit."""
        length = len(request.prompt)
        if not length or request.max_tokens < 1:
            raise ConfigError(
                "a request must have a token and ask for one",
                code="empty-request",
                value=f"{length} tokens, max_tokens {request.max_tokens}",
            )
        most = min(self.context, self.cache_tokens // self.page * self.page)
        if length + request.max_tokens > most:
            raise ConfigError(
                "a request must fit the context of the model",
                code="context-exceeded",
                value=f"{length} tokens of prompt and {request.max_tokens} to come",
                rule=f"at most {most} together",
                remedy="shorten the prompt, or ask for fewer tokens",
            )
        if len(request.prediction) > most:
            raise ConfigError(
                "a prediction must fit the context of the model",
                code="prediction-too-long",
                value=f"{len(request.prediction)} tokens",
                rule=f"at most {most}",
            )
