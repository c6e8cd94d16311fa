"""The tokens of a model as bytes, by llguidance, which is imported when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from waferstream.serving.models.text import Text


class Grammars:
    """The tokens of a model.

    Args:
        text: How the model reads and writes text.
        vocabulary: Its tokens, of which the text may know fewer.
    """

    def __init__(self, text: Text, vocabulary: int) -> None:
        self._text = text
        self._vocabulary = vocabulary

    @cached_property
    def tokens(self) -> Any:
        """The tokens as llguidance has them, and one more that ends texts if the model has none."""
        return self._text.guided(self._vocabulary)

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token, which may be part of a character."""
        found: bytes = self.tokens.decode_bytes([token])
        return found
