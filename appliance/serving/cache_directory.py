"""Which tokens the cache of a stage has: sequences that run, and beginnings that are kept.

The cache of a sequence that no longer runs is kept for a while, so that another request with the
same first tokens begins with a copy. It is given up, the least recently used first, where one that
runs needs the memory. The stage is told by changes; nothing here computes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

BLOCK = 128
"""Tokens of a block; beginnings are known by whole ones."""


@dataclass(frozen=True)
class Copy:
    """A change of the stage: a sequence begins with the first tokens of another."""

    source: str
    target: str
    tokens: int


@dataclass(frozen=True)
class Forget:
    """A change of the stage: a sequence is freed."""

    sequence: str


Change = Copy | Forget


def block_key(before: bytes, *content: int | str) -> bytes:
    """Return what a block is known by: its tokens, and the key of all that is before it."""
    return hashlib.blake2b(before + repr(content).encode(), digest_size=16).digest()


@dataclass
class _Entry:
    memory: int  # tokens, of whole pages
    used_s: float
    keys: list[bytes] = field(default_factory=list)
    is_open: bool = True  # a sequence that runs extends it
    life_s: float = 0.0

    def shares(self, keys: Sequence[bytes]) -> int:
        """Return the first blocks that are those of ``keys``."""
        pairs = zip(self.keys, keys, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class CacheDirectory:
    """The sequences in the cache of a stage, and the memory that they take.

    Args:
        memory: Tokens that the cache holds.
        page: Tokens by which a sequence grows.
        now: A clock, in seconds.
    """

    def __init__(self, memory: int, page: int, now: Callable[[], float]) -> None:
        self._memory = memory
        self._page = page
        self._now = now
        self._entries: dict[str, _Entry] = {}  # the least recently used first
        self._changes: list[Change] = []
        self._numbers = count()

    @property
    def free(self) -> int:
        """Tokens of memory that no sequence takes."""
        return self._memory - sum(entry.memory for entry in self._entries.values())

    @property
    def has_changes(self) -> bool:
        """Whether the stage does not know all yet."""
        return bool(self._changes)

    @property
    def ends_in_s(self) -> float | None:
        """The time until the next beginning is given up; None if none is kept."""
        ends = [e.used_s + e.life_s for e in self._entries.values() if not e.is_open]
        return max(0.0, min(ends) - self._now()) if ends else None

    def changes(self) -> list[Change]:
        """Return what the stage must change before it computes, in order, and keep it no more."""
        changes, self._changes = self._changes, []
        return changes

    def pages(self, tokens: int) -> int:
        """Return the memory of so many tokens."""
        return -(-tokens // self._page) * self._page

    def open(self, keys: Sequence[bytes], tokens: int) -> tuple[str, int] | None:
        """Begin a sequence with the longest beginning that is known.

        It is copied, or taken over where nobody loses by it, or there is no memory for both.

        Args:
            keys: The blocks that it may begin with.
            tokens: What it needs memory for.

        Returns:
            Its name in the stage and the tokens that it has there, or None if there is no room.
        """
        source = max(self._entries, key=lambda name: self._entries[name].shares(keys), default="")
        held = self._entries.get(source)
        shared = held.shares(keys) if held is not None else 0
        if held is None or not shared:
            return (self._new(tokens), 0) if self._make_room(self.pages(tokens)) else None
        if held.is_open or shared < len(held.keys):
            if self._make_room(self.pages(tokens), spared=source):
                target = self._new(tokens)
                self._changes.append(Copy(source, target, shared * BLOCK))
                self._use(source)
                return target, shared * BLOCK
            if held.is_open:
                return None
        if not self._make_room(self.pages(tokens) - held.memory, spared=source):
            return None
        held.is_open, held.memory = True, max(held.memory, self.pages(tokens))
        del held.keys[shared:]
        return source, shared * BLOCK

    def grow(self, name: str, tokens: int, *, evicts: bool = True) -> bool:
        """Let a sequence have memory for so many tokens; return whether there is room."""
        entry = self._entries[name]
        more = self.pages(tokens) - entry.memory
        if more > 0 and not (self._make_room(more) if evicts else more <= self.free):
            return False
        entry.memory += max(0, more)
        return True

    def extend(self, name: str, keys: Sequence[bytes]) -> None:
        """Take the blocks that a sequence has computed."""
        held = self._entries[name].keys
        held += keys[len(held) :]

    def close(self, name: str, life_s: float) -> None:
        """Keep the beginning of a sequence that no longer runs; forget those that it contains."""
        entry = self._entries[name]
        entry.is_open, entry.life_s = False, max(life_s, entry.life_s)
        for other, kept in list(self._entries.items()):
            if not kept.is_open and other != name and kept.shares(entry.keys) == len(kept.keys):
                entry.life_s = max(entry.life_s, kept.life_s)
                self._forget(other)
        self._use(name)
        if not entry.keys or life_s <= 0:
            self._forget(name)

    def expire(self) -> None:
        """Give up what was not used for its life."""
        now = self._now()
        for name, entry in list(self._entries.items()):
            if not entry.is_open and now >= entry.used_s + entry.life_s:
                self._forget(name)

    def clear(self) -> None:
        """Know no sequence any more, as the stage does."""
        self._entries.clear()
        self._changes.clear()

    def _new(self, tokens: int) -> str:
        name = f"kv-{next(self._numbers)}"
        self._entries[name] = _Entry(self.pages(tokens), self._now())
        return name

    def _use(self, name: str) -> None:
        entry = self._entries[name] = self._entries.pop(name)
        entry.used_s = self._now()

    def _forget(self, name: str) -> None:
        del self._entries[name]
        self._changes.append(Forget(name))

    def _make_room(self, tokens: int, spared: str = "") -> bool:
        """Let so many tokens be free; return False, and give up nothing, if they cannot be."""
        closed = [n for n, entry in self._entries.items() if not entry.is_open and n != spared]
        if self.free + sum(self._entries[name].memory for name in closed) < tokens:
            return False
        for name in closed:
            if self.free >= tokens:
                break
            self._forget(name)
        return True
