"""What the answer to one chat may be: its grammar, and who reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from waferstream.serving.formats import thoughts
from waferstream.serving.formats.calls import CallStyle, Tool, calls_rules
from waferstream.serving.formats.grammars import ANY_TEXT, TokenOf, until_rule, word_term
from waferstream.serving.formats.reading import ChatReader
from waferstream.serving.formats.thoughts import Thinking, ThoughtFormat


@dataclass(frozen=True)
class ChatFormat:
    """What an answer may be.

    Attributes:
        thinking: Whether it has thoughts.
        thoughts: Where they are told.
        tools: What it may call.
        style: How it writes calls.
        must_call: Whether it consists of calls.
        is_one_call: Whether it has one call at most.
        term: What it is otherwise, as the term of a grammar; None for any text.
    """

    thinking: Thinking = "never"
    thoughts: ThoughtFormat = "raw"
    tools: Sequence[Tool] = ()
    style: CallStyle | None = None
    must_call: bool = False
    is_one_call: bool = False
    term: str | None = None

    def reader(self) -> ChatReader:
        """Return what reads a new answer."""
        names = frozenset(tool.name for tool in self.tools)
        return ChatReader(
            self.thinking, self.thoughts, self.style, names, is_one_call=self.is_one_call
        )

    def grammar(self, token_of: TokenOf) -> str | None:
        """Return the grammar of the answer, None if it may be any text.

        Raises:
            ConfigError: The schema of a tool is too large.
        """
        calls = []
        if self.style is not None and self.tools:
            calls = calls_rules(self.style, self.tools, token_of, is_one=self.is_one_call)
        if self.must_call:
            body = "calls"
        elif self.term is not None:
            body = f"calls | {self.term}" if calls else self.term
        elif any(tool.is_strict for tool in self.tools):
            body = "free"
        else:
            return None
        rules = [*self._start(token_of), *calls, f"body: {body}"]
        return "\n".join(dict.fromkeys(rules))  # rules of both may be the same

    def _start(self, token_of: TokenOf) -> list[str]:
        """Return the rules of the whole answer: thoughts before its body."""
        if self.thinking == "never":
            return ["start: body"]
        begin = word_term(thoughts.BEGIN, token_of)
        start = "thought" if self.thinking == "begun" else f"({begin} thought)?"
        return [
            f"start: {start} body",
            "thought: thinking /\\n{0,2}/",
            until_rule("thinking", thoughts.END, token_of),
            ANY_TEXT,
        ]
