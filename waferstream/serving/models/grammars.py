"""Grammars over the tokens of a model, by llguidance, which is imported when it is first needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from waferstream.core.errors import ConfigError
from waferstream.core.extras import extra_package
from waferstream.serving.models.text import Text

TRIED = 32
"""Tokens of an answer by which a grammar is tried: those that cannot be handled fail early."""

KEPT = 64
"""Grammars that stay compiled."""


class Grammars:
    """The tokens of a model, and grammars over them.

    Args:
        text: How the model reads and writes text.
        vocabulary: Its tokens, of which the text may know fewer.
    """

    def __init__(self, text: Text, vocabulary: int) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._compiled = lru_cache(KEPT)(self._compile)

    @cached_property
    def tokens(self) -> Any:
        """The tokens as llguidance has them, and one more that ends texts if the model has none."""
        return self._text.guided(self._vocabulary)

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token, which may be part of a character."""
        found: bytes = self.tokens.decode_bytes([token])
        return found

    def guide(self, grammar: str) -> TokenGuide:
        """Return the guide of a new answer.

        Args:
            grammar: In the Lark syntax of llguidance.

        Raises:
            ConfigError: It is no grammar, or nothing fits it.
        """
        matcher = self._compiled(grammar).deep_copy()
        return TokenGuide(matcher, self.tokens.eos_token, self._text.ends, self._vocabulary)

    def _compile(self, grammar: str) -> Any:
        """Return a matcher at the beginning of an answer."""
        matchers = extra_package("llguidance", "serve").LLMatcher
        limits = extra_package("llguidance", "serve").LLParserLimits(verbose_errors=False)
        source = matchers.grammar_from_lark(grammar)
        matcher = matchers(self.tokens, source, log_level=0, limits=limits)
        if fault := matcher.get_error() or self._fault_in_use(matcher.deep_copy()):
            raise ConfigError(
                "an answer must be able to fit its format",
                code="format-not-possible",
                value=_told(fault),
                remedy="see json-schema.org; keywords that are not known here are refused",
            )
        return matcher

    def _fault_in_use(self, matcher: Any) -> str:
        """Return why a matcher does not go on for the first tokens, empty if it does."""
        for _ in range(TRIED):
            matcher.compute_ff_bytes()  # which never ends where nothing finite fits
            allowed = np.flatnonzero(_mask(matcher, self.tokens.vocab_size))
            others = allowed[allowed != self.tokens.eos_token]
            if matcher.is_error() or not len(others):
                break
            matcher.consume_token(int(others[0]))
        is_empty = matcher.is_stopped() and not matcher.is_accepting()
        return str(matcher.get_error()) or ("nothing fits it" if is_empty else "")


class TokenGuide:
    """Keeps the tokens of an answer to a grammar.

    Args:
        matcher: That of llguidance.
        end: The token that it knows as the end.
        ends: Those of the model, all of which may come where it may.
        vocabulary: The tokens of the model.
    """

    def __init__(self, matcher: Any, end: int, ends: Iterable[int], vocabulary: int) -> None:
        self._matcher = matcher
        self._end = end
        self._ends = list(ends)
        self._vocabulary = vocabulary

    def allowed(self) -> np.ndarray:
        """Return whether each token may come next."""
        found = _mask(self._matcher, max(self._vocabulary, self._end + 1))
        found[self._ends] = found[self._end]
        allowed = found[: self._vocabulary]
        if not allowed.any():
            raise self._broken()
        return allowed

    def take(self, token: int) -> None:
        """Follow a token."""
        if not self._matcher.consume_token(token):
            raise self._broken()

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow; of a model without ends, whether nothing needs to."""
        matcher = self._matcher
        return bool(matcher.is_stopped() or (not self._ends and matcher.is_accepting()))

    def _broken(self) -> ConfigError:
        return ConfigError(
            "the grammar of an answer does not go on",
            code="grammar-broken",
            value=_told(self._matcher.get_error()) or "no token may come",
            remedy="ask for a simpler format",
        )


def _told(fault: str) -> str:
    """Return what llguidance says of a fault, without places in a grammar that nobody wrote."""
    said = re.split(r"\n +\d+ \| |<non-verbose/>", fault)[0]
    return re.sub(r"^at \d+\(\d+\): ", "", said).strip()


def _mask(matcher: Any, size: int) -> np.ndarray:
    """Return which of the first tokens may come, as bool."""
    bits = np.zeros(-(-size // 32), np.int32)
    matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
    return np.unpackbits(bits.view(np.uint8), bitorder="little")[:size].view(bool)
