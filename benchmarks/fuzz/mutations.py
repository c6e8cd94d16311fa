"""Mutations of valid inputs: bytes, and trees of plain data; all of a given random generator."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from waferstream.core.units import KIB

_SPECIAL_BYTES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\n",
    b'"',
    b"{",
    b"[",
    b",",
    b":",
    b"-",
    b"&a ",
)
_LONGEST = 256 * KIB

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "auto", "\0", "a" * 300, "../..", "/dev/null", "${x}", "é\u2028", "1e3", [],
    {}, [[]], [None], {"": None}, {"a": {"b": []}}, {1: 2}, {None: 0}, datetime.date(2000, 1, 1),
)  # fmt: skip
"""Values at the edge of what a field may hold, and of other types."""


def mutated_bytes(random: Random, corpus: Sequence[bytes]) -> bytes:
    """Return one of the corpus after one to eight edits."""
    content = bytearray(random.choice(corpus))
    for _ in range(1 + int(random.random() ** 3 * 8)):
        _edit(random, content, corpus)
    return bytes(content[:_LONGEST])


def _edit(random: Random, content: bytearray, corpus: Sequence[bytes]) -> None:
    start = random.randrange(len(content) + 1)
    stop = min(len(content), start + int(random.random() ** 4 * 64) + 1)
    match random.randrange(7):
        case 0 if content:
            content[start - 1] ^= 1 << random.randrange(8)
        case 1:
            content[start:stop] = random.randbytes(stop - start)
        case 2:
            del content[start:stop]
        case 3:
            content[start:start] = content[start:stop] * random.randrange(1, 20)
        case 4:
            content[start:stop] = random.choice(_SPECIAL_BYTES)
        case 5:
            del content[start:]
        case _:
            other = random.choice(corpus)
            first = random.randrange(len(other) + 1)
            content[start:stop] = other[first : first + 64]


def mutated_tree(random: Random, tree: Any) -> Any:
    """Return a tree of plain data with one to four of its nodes changed."""
    for _ in range(1 + int(random.random() ** 2 * 4)):
        tree = _changed(random, tree, tree)
    return tree


def _changed(random: Random, node: Any, whole: Any) -> Any:
    """Return a node with a change in it: in one of its parts, or of itself."""
    if isinstance(node, dict) and node and random.random() < 0.9:
        key = random.choice(list(node))
        if random.random() < 0.15:
            return _with_other_key(random, node, key)
        return {**node, key: _changed(random, node[key], whole)}
    if isinstance(node, list) and node and random.random() < 0.9:
        index = random.randrange(len(node))
        if random.random() < 0.15:
            return [*node[:index], *node[index + random.randrange(2) :], node[index]]
        return [*node[:index], _changed(random, node[index], whole), *node[index + 1 :]]
    others = (*ODD_VALUES, _part(random, whole), [node] * random.randrange(3))
    return random.choice(others if random.random() < 0.6 else others[-2:])


def _with_other_key(random: Random, node: dict[Any, Any], key: Any) -> dict[Any, Any]:
    """Return a mapping without a key, with a further one, or with a renamed one."""
    rest = {other: value for other, value in node.items() if other != key}
    other = random.choice((1, None, True, "", "x", f"{key}_", str(key).upper()))
    match random.randrange(3):
        case 0:
            return rest
        case 1:
            return {**node, other: random.choice(ODD_VALUES)}
    return {**rest, other: node[key]}


def _part(random: Random, tree: Any) -> Any:
    """Return a random part of a tree."""
    while isinstance(tree, dict | list) and tree and random.random() < 0.8:
        tree = random.choice(list(tree.values()) if isinstance(tree, dict) else tree)
    return tree


def of_bytes(corpus: Sequence[bytes]) -> Callable[[Random], bytes]:
    """Return a source of mutated bytes."""
    return lambda random: mutated_bytes(random, corpus)


def of_trees(corpus: Sequence[Any], write: Callable[[Any], bytes]) -> Callable[[Random], bytes]:
    """Return a source of mutated trees, written as bytes."""
    return lambda random: write(mutated_tree(random, random.choice(corpus)))


def as_json(tree: Any) -> bytes:
    """Return a tree as JSON, without the keys that it cannot have."""
    return json.dumps(tree, default=str, skipkeys=True).encode()
