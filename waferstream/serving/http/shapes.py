"""What an answer looks like on the wire, as OpenAI's clients read it.

Times stand beside it as the vendor's service has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from waferstream.serving.answers import End
from waferstream.version import VERSION

FINGERPRINT = f"waferstream-{VERSION}"
"""What computes: with the model, the prompt and the sampling it states the text."""


@dataclass(frozen=True)
class Shape:
    """The objects that one answer consists of: of a chat, or of a completion."""

    model: str
    is_chat: bool
    created_s: int = field(default_factory=lambda: int(time.time()))
    name: str = field(default_factory=lambda: uuid4().hex)

    def whole(self, text: str, end: End) -> dict[str, Any]:
        """Return the answer in one object."""
        message = {"role": "assistant", "content": text}
        choice = {"message": message} if self.is_chat else {"text": text}
        return {
            **self._head("chat.completion" if self.is_chat else "text_completion"),
            "choices": [_choice(choice, end.reason)],
            "usage": _usage(end),
            "time_info": self._times(end),
            "seed": end.seed,
        }

    def opening(self) -> dict[str, Any] | None:
        """Return the chunk before the text of a streamed chat."""
        return (
            self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.is_chat else None
        )

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk of a streamed answer."""
        return self._chunk({"delta": {"content": text}} if self.is_chat else {"text": text})

    def closing(self, end: End) -> dict[str, Any]:
        """Return the chunk that says why a streamed answer ends."""
        last = self._chunk({"delta": {}} if self.is_chat else {"text": ""}, end.reason)
        return {**last, "time_info": self._times(end), "seed": end.seed}

    def usage(self, end: End) -> dict[str, Any]:
        """Return the chunk of the usage of a streamed answer."""
        return {**self._chunk(None), "usage": _usage(end)}

    def _chunk(self, choice: Mapping[str, Any] | None, reason: str | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        choices = [] if choice is None else [_choice(choice, reason)]
        return {**self._head(kind), "choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        return {
            "id": f"{prefix}-{self.name}",
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }

    def _times(self, end: End) -> dict[str, float]:
        emulated = end.emulated
        return {
            "queue_time": 0.0,
            "prompt_time": emulated.prompt_s,
            "completion_time": emulated.completion_s,
            "total_time": emulated.prompt_s + emulated.completion_s,
            "measured": end.measured_s,
            "created": float(self.created_s),
        }


def _choice(choice: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, **choice, "logprobs": None, "finish_reason": reason}


def _usage(end: End) -> dict[str, Any]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": end.cached_tokens},
    }
