"""What is said in the text of an answer: thoughts, text and calls, as it comes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from waferstream.serving.formats import thoughts
from waferstream.serving.formats.calls import PYTHON_TAG, Call, CallStyle
from waferstream.serving.formats.thoughts import Thinking, ThoughtFormat
from waferstream.serving.models.text import overlap


@dataclass(frozen=True)
class Said:
    """What is said in a piece of an answer."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()

    def __add__(self, other: Said) -> Said:
        return Said(self.text + other.text, self.thought + other.thought, self.calls + other.calls)


class Reader(Protocol):
    """What reads one answer."""

    @property
    def words(self) -> Collection[str]:
        """The words that it looks for, which may be tokens that are no text."""

    @property
    def told(self) -> ThoughtFormat:
        """Where thoughts are told."""

    @property
    def is_thinking(self) -> bool:
        """Whether what comes next is a thought."""

    @property
    def is_over(self) -> bool:
        """Whether the answer has all that it may have."""

    def feed(self, text: str) -> Said:
        """Return what is said for certain up to the end of a text."""

    def end(self) -> Said:
        """Return what was held back."""


class PlainReader:
    """Reads answers that are text alone."""

    words = ()
    told: ThoughtFormat = "raw"
    is_thinking = False
    is_over = False

    def feed(self, text: str) -> Said:
        """Return a text as it is."""
        return Said(text)

    def end(self) -> Said:
        """Return nothing: nothing is held back."""
        return Said()


class ChatReader:
    """Reads answers with thoughts and calls.

    Args:
        thinking: Whether the answer has thoughts.
        told: Where they are told.
        style: How calls are written.
        names: What may be called; other calls are text.
        is_one_call: Whether the answer is over after a call.
    """

    def __init__(
        self,
        thinking: Thinking,
        told: ThoughtFormat,
        style: CallStyle | None,
        names: Collection[str],
        *,
        is_one_call: bool,
    ) -> None:
        self.is_thinking = thinking == "begun"
        self.is_over = False
        self._may_think = thinking == "perhaps"
        self.told = told
        self._style = style if names else None
        self._names = names
        self._is_one_call = is_one_call
        self._held = ""
        self._is_calling = False
        self._has_begun = False  # to say text
        self._has_called = False

    @property
    def words(self) -> list[str]:
        """The words around thoughts and calls."""
        style = [] if self._style is None else [self._style.begin, self._style.end, PYTHON_TAG]
        return [thoughts.BEGIN, thoughts.END, *style]

    def feed(self, text: str) -> Said:
        """Return what is said for certain up to the end of a text."""
        self._held += text
        said = Said()
        while (more := self._next()) is not None:
            said += more
        return said

    def end(self) -> Said:
        """Return what was held back; a call that is not whole is text."""
        if self.is_thinking:
            return self._thought(self._take(len(self._held)))
        if self._is_calling:
            return self._calls(self._take(len(self._held)), "")
        rest = self._take(len(self._held))
        return Said(rest.rstrip() if self._has_called else rest)

    def _next(self) -> Said | None:
        """Return what is said next, None if that depends on what comes."""
        if self.is_over:
            self._held = ""
        if not self._held:
            return None
        if self.is_thinking:
            return self._think()
        if self._is_calling:
            return self._call()
        return self._talk()

    def _think(self) -> Said | None:
        place = self._held.find(thoughts.END)
        if place < 0:
            sure = self._sure(thoughts.END)
            return self._thought(self._take(sure)) if sure else None
        thought = self._thought(self._take(place))
        self._take(len(thoughts.END))
        self.is_thinking = False
        return thought + self._mark(thoughts.END)

    def _talk(self) -> Said | None:
        if not self._has_begun:
            first = self._held.lstrip()
            if self._may_think and first.startswith(thoughts.BEGIN):
                self._held = first[len(thoughts.BEGIN) :]
                self.is_thinking, self._may_think = True, False
                return self._mark(thoughts.BEGIN)
            if not first or any(word.startswith(first) for word in self._first_words()):
                return None
            if self.told != "raw" or self._style:
                self._held = first
        if self._style is not None and (place := self._run_at(self._style)) >= 0:
            text = self._take(place).rstrip()
            self._take(len(self._style.begin))
            self._is_calling = True
            return Said(text)
        text = self._take(self._sure(self._style.begin) if self._style else len(self._held))
        self._has_begun = self._has_begun or bool(text)
        return Said(text) if text else None

    def _call(self) -> Said | None:
        end = self._style.end if self._style else ""
        place = self._held.find(end) if end else -1
        if place < 0:
            return None
        run = self._take(place)
        self._take(len(end))
        return self._calls(run, end)

    def _calls(self, run: str, end: str) -> Said:
        """Return the calls of a run, or its text if it has others."""
        assert self._style is not None
        self._is_calling = False
        calls = tuple(self._style.calls_in(run, self._names))
        if not calls:
            self._has_begun = True
            return Said(self._style.begin + run + end)
        self._has_called = True
        self.is_over = self._is_one_call
        return Said(calls=calls[:1] if self._is_one_call else calls)

    def _first_words(self) -> list[str]:
        """Return the words that make an answer begin with something else than text."""
        words = [thoughts.BEGIN] if self._may_think else []
        return words if self._style is None else [*words, self._style.begin or PYTHON_TAG]

    def _run_at(self, style: CallStyle) -> int:
        """Return where a run of calls begins, -1 if nowhere; some models write nothing else."""
        return -1 if not style.begin and self._has_begun else style.begins(self._held)

    def _sure(self, word: str) -> int:
        """Return the characters before what may be the begin of a word, or space before it."""
        return len(self._held[: len(self._held) - overlap(self._held, word)].rstrip())

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken

    def _thought(self, text: str) -> Said:
        match self.told:
            case "parsed":
                return Said(thought=text)
            case "raw":
                return Said(text)
        return Said()

    def _mark(self, word: str) -> Said:
        return Said(word if self.told == "raw" else "")
