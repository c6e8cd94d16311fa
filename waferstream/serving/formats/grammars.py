"""Terms and rules of a grammar of llguidance, in its Lark syntax."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

TokenOf = Callable[[str], int | None]
"""Returns the token that is a word of its own, None if it has none."""

ANY_TEXT = "TEXT: /(.|\\n)*/"
"""The rule of any text without words that are tokens of their own."""


def word_term(word: str, token_of: TokenOf) -> str:
    """Return the term of a word, which may be one token."""
    token = token_of(word)
    return json.dumps(word) if token is None else f"<[{token}]>"


def until_rule(name: str, word: str, token_of: TokenOf) -> str:
    """Return the rule of any text up to a word, and of the word."""
    is_token = token_of(word) is not None
    return f"{name}{'' if is_token else '[lazy]'}: TEXT {word_term(word, token_of)}"


def text_term(text: str) -> str:
    """Return the term of a text, nothing if it is empty."""
    return json.dumps(text) if text else ""


def either(terms: Sequence[str]) -> str:
    """Return the term of any of some terms."""
    return f"({' | '.join(terms)})"
