"""What answers look like on the wire, as OpenAI's clients read them.

Times stand beside them as the vendor's service has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from waferstream.core.serving import Tier
from waferstream.serving.formats.calls import Call
from waferstream.serving.formats.reading import Said
from waferstream.serving.http import logprobs
from waferstream.serving.questions import End, Piece, ToldToken
from waferstream.version import VERSION

FINGERPRINT = f"waferstream-{VERSION}"
"""What computes: with the model, the prompt and the sampling it states the text."""


@dataclass(frozen=True)
class Choice:
    """A complete answer."""

    said: Said
    tokens: tuple[ToldToken, ...]
    end: End

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> Self:
        """Return the answer of all its pieces."""
        end = pieces[-1].end
        assert end is not None
        tokens = tuple(told for piece in pieces for told in piece.tokens)
        return cls(sum((piece.said for piece in pieces), Said()), tokens, end)


@dataclass(frozen=True)
class Shape:
    """The objects that the answers to one request consist of: of a chat, or of a completion.

    Attributes:
        model: The name of the model.
        is_chat: Whether it is a chat.
        num_choices: The answers to each prompt.
        tier: The tier of the answers.
    """

    model: str
    is_chat: bool
    num_choices: int = 1
    tier: Tier = "default"
    created_s: int = field(default_factory=lambda: int(time.time()))
    name: str = field(default_factory=lambda: uuid4().hex)

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Return all answers in one object."""
        ends = [choice.end for choice in choices]
        return {
            **self._head("chat.completion" if self.is_chat else "text_completion"),
            "choices": [
                self._choice(number, self._whole(choice.said), choice.tokens, choice.end.reason)
                for number, choice in enumerate(choices)
            ],
            "usage": self._usage(ends),
            "time_info": self._times(ends),
            "seed": ends[0].seed,
        }

    def opening(self, number: int) -> dict[str, Any] | None:
        """Return the chunk before the text of a streamed chat."""
        if not self.is_chat:
            return None
        return self._chunk(number, {"delta": {"role": "assistant", "content": ""}})

    def piece(self, number: int, piece: Piece, prompt_tokens: int | None = None) -> dict[str, Any]:
        """Return a chunk of a streamed answer, with its usage if the prompt's tokens are given."""
        said = {"delta": _delta(piece.said)} if self.is_chat else {"text": piece.said.text}
        chunk = self._chunk(number, said, piece.tokens)
        if prompt_tokens is None:
            return chunk
        total = prompt_tokens + piece.num_tokens
        counts = {"prompt_tokens": prompt_tokens, "completion_tokens": piece.num_tokens}
        return {**chunk, "usage": {**counts, "total_tokens": total}}

    def closing(self, number: int, end: End) -> dict[str, Any]:
        """Return the chunk that says why a streamed answer ends."""
        said: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        last = self._chunk(number, said, reason=end.reason)
        return {**last, "time_info": self._times([end]), "seed": end.seed}

    def usage(self, ends: Sequence[End]) -> dict[str, Any]:
        """Return the chunk of the usage of streamed answers."""
        return {**self._head(self._chunk_kind), "choices": [], "usage": self._usage(ends)}

    def _whole(self, said: Said) -> dict[str, Any]:
        """Return what is said in an answer that is complete."""
        if not self.is_chat:
            return {"text": said.text}
        message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
        if said.thought:
            message["reasoning"] = said.thought
        if said.calls:
            message["content"] = said.text or None
            message["tool_calls"] = [_call(call) for call in said.calls]
        return {"message": message}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _chunk(
        self,
        number: int,
        said: Mapping[str, Any],
        tokens: Sequence[ToldToken] = (),
        reason: str | None = None,
    ) -> dict[str, Any]:
        choice = self._choice(number, said, tokens, reason)
        return {**self._head(self._chunk_kind), "choices": [choice]}

    def _choice(
        self,
        number: int,
        said: Mapping[str, Any],
        tokens: Sequence[ToldToken],
        reason: str | None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": number, **said, "logprobs": None}
        told = logprobs.of_chat if self.is_chat else logprobs.of_completion
        for name, is_thought in (("logprobs", False), ("reasoning_logprobs", True)):
            if beside := [token for token in tokens if token.is_thought == is_thought]:
                choice[name] = told(beside)
        return {**choice, "finish_reason": reason}

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        return {
            "id": f"{prefix}-{self.name}",
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "service_tier": self.tier,
            "service_tier_used": self.tier,
            "system_fingerprint": FINGERPRINT,
        }

    def _usage(self, ends: Sequence[End]) -> dict[str, Any]:
        """Return the tokens of all answers; a prompt counts once, whatever answers it has."""
        read = ends[:: self.num_choices]
        prompt = sum(end.prompt_tokens for end in read)
        completion = sum(end.completion_tokens for end in ends)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(end.cached_tokens for end in read)},
            "completion_tokens_details": {
                "reasoning_tokens": sum(end.thought_tokens for end in ends),
                "accepted_prediction_tokens": sum(end.accepted_tokens for end in ends),
                "rejected_prediction_tokens": sum(end.rejected_tokens for end in ends),
            },
        }

    def _times(self, ends: Sequence[End]) -> dict[str, Any]:
        """Return seconds: those of the slowest answer, as answers pass the machine together."""
        slowest = max((end.emulated for end in ends), key=lambda emulated: emulated.total_s)
        return {
            "queue_time": 0.0,
            "prompt_time": slowest.prompt_s,
            "completion_time": slowest.completion_s,
            "total_time": slowest.total_s,
            "measured": max(end.measured_s for end in ends),
            "attribution": slowest.attribution,
            "created": float(self.created_s),
        }


def _delta(said: Said) -> dict[str, Any]:
    """Return what a piece of a streamed chat adds."""
    delta: dict[str, Any] = {}
    if said.thought:
        delta["reasoning"] = said.thought
    if said.text or not (said.thought or said.calls):
        delta["content"] = said.text
    if said.calls:
        delta["tool_calls"] = [{"index": call.number, **_call(call)} for call in said.calls]
    return delta


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
