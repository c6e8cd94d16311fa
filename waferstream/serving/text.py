"""Text as tokens: bytes, as the zoo's ``TextDataProcessor`` reads them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class ByteText:
    """Text as the bytes of UTF-8."""

    vocabulary = 256

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text."""
        return tuple(text.encode())

    def decoder(self) -> TextDecoder:
        """Return what turns the tokens of one answer into text."""
        return TextDecoder()


class TextDecoder:
    """Text from tokens, whose characters may be split between tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """Return the characters that a token completes; those that are none become U+FFFD."""
        return self._decoder.decode(bytes((token,)))

    def end(self) -> str:
        """Return what is left of a character that was not completed."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """An answer up to the first of some texts, which it does not include."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.has_stopped = False
        """Whether one of the texts has come."""

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
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def end(self) -> str:
        """Return what was held back, since the answer ends."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last characters of a text begin a stop."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
