"""Text as tokens, and tokens as text."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from waferstream.core.errors import ConfigError
from waferstream.core.extras import extra_package

Message = Mapping[str, Any]
"""A message of a chat: its ``role``, its ``content``, and what templates know beside."""


@dataclass(frozen=True)
class Chat:
    """A chat as a prompt: its text, and its tokens."""

    written: str
    tokens: tuple[int, ...]


class TextDecoder(Protocol):
    """Text from the tokens of one answer, which may split characters."""

    def feed(self, token: int) -> str:
        """Return the characters that a token completes."""

    def end(self) -> str:
        """Return what is left of a character that was not completed, as U+FFFD."""


class Text(Protocol):
    """How a model reads and writes text."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text to continue."""

    @property
    def template(self) -> str | None:
        """What writes chats, if anything."""

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Chat:
        """Return a chat to answer.

        Args:
            messages: The chat.
            tools: What may be called, as OpenAI describes functions.
            options: Names that the template of the model knows.

        Raises:
            ConfigError: The model knows no chats, or not these messages.
        """

    def token_of(self, word: str) -> int | None:
        """Return the token that a word is, None if it is written by others."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with those that are no text as their names."""

    def guided(self, vocabulary: int) -> Any:
        """Return the tokens of a model as llguidance has them, an ``LLTokenizer``.

        A text without a token that ends it gets one more.
        """

    def decoder(self, prompt: Sequence[int] = (), words: Collection[str] = ()) -> TextDecoder:
        """Return what turns the tokens that follow a prompt into text, tokens that are words too.

        Others that are no text, such as those that begin messages, are left out.
        """


class ByteText:
    """Text as the bytes of UTF-8, as the zoo's ``TextDataProcessor`` reads it."""

    vocabulary = 256
    ends: frozenset[int] = frozenset()
    template = None

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the bytes of a text."""
        try:
            return tuple(text.encode())
        except UnicodeEncodeError as error:
            raise ConfigError(
                "a prompt must be text", code="prompt-not-text", value=repr(text), rule=str(error)
            ) from error

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),  # noqa: ARG002
        options: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Chat:
        """Return the contents, a line each: there are no words for roles."""
        text = "\n".join(message["content"] for message in messages)
        return Chat(text, self.encode(text))

    def token_of(self, word: str) -> int | None:  # noqa: ARG002
        """Return None: a byte is no word."""
        return None

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes."""
        return bytes(tokens).decode(errors="replace")

    def guided(self, vocabulary: int) -> Any:
        """Return bytes as llguidance has them, and a token that ends them."""
        package = extra_package("llguidance", "serve")
        wrapped = package.TokenizerWrapper(_Bytes(vocabulary))
        return package.LLTokenizer(wrapped, n_vocab=vocabulary + 1, slices=[])

    def decoder(
        self,
        prompt: Sequence[int] = (),  # noqa: ARG002
        words: Collection[str] = (),  # noqa: ARG002
    ) -> ByteDecoder:
        """Return what turns bytes into text."""
        return ByteDecoder()


class _Bytes:
    """Bytes as a tokenizer of llguidance, whose names these are."""

    bos_token_id = None

    def __init__(self, vocabulary: int) -> None:
        self.tokens = [*(bytes((byte,)) for byte in range(vocabulary)), b"<end>"]
        self.eos_token_id = vocabulary
        self.special_token_ids = [vocabulary]

    def __call__(self, text: bytes) -> list[int]:
        """Return the tokens of a text."""
        return list(text)


class ByteDecoder:
    """Text from bytes; those that are no text become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Return the characters that a byte completes."""
        return self._decoder.decode(bytes((token,)))

    def end(self) -> str:
        """Return U+FFFD for a character that was not completed."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """An answer up to the first of some texts, which it does not include."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.has_stopped = False
        """Whether one of the texts has come."""

    @property
    def is_holding(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Return the text that can be shown; the start of a stop is held back."""
        if self.has_stopped:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.has_stopped = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        keep = max((overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def end(self) -> str:
        """Return what was held back, since the answer ends."""
        shown, self._held = self._held, ""
        return shown


def overlap(text: str, word: str) -> int:
    """Return how many of the last characters of a text begin a word."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)
