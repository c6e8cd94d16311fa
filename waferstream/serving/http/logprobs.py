"""Tokens with the logarithms of their probabilities, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waferstream.serving.questions import ToldToken


def of_chat(tokens: Sequence[ToldToken]) -> dict[str, Any]:
    """Return the ``logprobs`` of a choice of a chat."""
    content = [
        {
            **_entry(told.text, told.logprob),
            "top_logprobs": [_entry(text, logprob) for text, logprob in told.best],
        }
        for told in tokens
    ]
    return {"content": content, "refusal": None}


def _entry(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text.decode(errors="replace"), "logprob": logprob, "bytes": list(text)}


def of_completion(tokens: Sequence[ToldToken]) -> dict[str, Any]:
    """Return the ``logprobs`` of a choice of a completion; tokens drawn are among the likeliest."""
    return {
        "tokens": [_name(told.text) for told in tokens],
        "token_logprobs": [told.logprob for told in tokens],
        "top_logprobs": [
            {_name(text): logprob for text, logprob in (*told.best, (told.text, told.logprob))}
            for told in tokens
        ],
        "text_offset": [told.offset for told in tokens],
    }


def _name(text: bytes) -> str:
    """Return the text of a token, or its bytes where it is part of a character."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)
