"""Limits of a YAML file, checked on its nodes before any value is built.

An alias repeats a node, so a file of a kilobyte can stand for gigabytes. Nodes are therefore
counted as a reader of the values would meet them.
"""

from __future__ import annotations

import re

import yaml

from waferstream.core.errors import ConfigError
from waferstream.core.units import MIB

MOST_BYTES = 1 * MIB
"""Limit of a file."""

_MOST_NODES = 100_000
_MOST_DEPTH = 100
_MOST_DIGITS = 100  # of a number; no field is wider than a double

_PREFIX = "tag:yaml.org,2002:"
_KNOWN = {_PREFIX + name for name in ("null", "bool", "int", "float", "str", "timestamp", "merge")}
_TEXTS = {_PREFIX + name for name in ("str", "timestamp")}
_NUMBERS = {_PREFIX + name for name in ("int", "float")}
_MISREAD = re.compile(r"[-+]?0[0-9_]+|[-+]?[0-9_]+:.*")
_COLLECTIONS = {_PREFIX + name for name in ("seq", "map")}


def check_limits(root: yaml.Node) -> None:
    """Refuse nodes that stand for too much, and values that are not plain data.

    Raises:
        ConfigError: A limit is exceeded, or a value is not plain.
    """
    sizes: dict[yaml.Node, int] = {}
    _count(root, sizes, ())


def _count(node: yaml.Node, sizes: dict[yaml.Node, int], above: tuple[yaml.Node, ...]) -> int:
    """Return how many nodes a node stands for."""
    if node in above:
        raise _too_much(node, "an alias of a value inside of itself", "no value contains itself")
    if node in sizes:
        return sizes[node]
    if len(above) == _MOST_DEPTH:
        raise _too_much(node, f"{_MOST_DEPTH} levels", f"at most {_MOST_DEPTH} levels")
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node)
    elif node.tag not in _COLLECTIONS:
        raise _not_plain(node, node.tag)
    below = (*above, node)
    sizes[node] = 1 + sum(_count(child, sizes, below) for child in _children(node))
    if sizes[node] > _MOST_NODES:
        raise _too_much(node, f"{sizes[node]} values", f"at most {_MOST_NODES} values")
    return sizes[node]


def _children(node: yaml.Node) -> list[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [child for pair in node.value for child in pair]
        case yaml.SequenceNode():
            return list(node.value)
    return []


def _check_scalar(node: yaml.ScalarNode) -> None:
    if node.tag not in _KNOWN:
        raise _not_plain(node, node.tag)
    if any("\ud800" <= character <= "\udfff" for character in node.value):  # half of a pair
        raise _not_plain(node, "a character that no text has")
    if node.tag not in _TEXTS and len(node.value) > _MOST_DIGITS:
        raise _too_much(node, f"{len(node.value)} digits", f"at most {_MOST_DIGITS} digits")
    if node.tag in _NUMBERS:
        _check_number(node)


def _check_number(node: yaml.ScalarNode) -> None:
    """Refuse a number that YAML 1.1 reads otherwise than people do: 010 as 8, 1:30 as 90."""
    if _MISREAD.fullmatch(node.value):
        raise ConfigError(
            "a number must be written in the way in which it is meant",
            code="number-ambiguous",
            where=_line(node),
            value=node.value,
            rule="YAML 1.1 reads numbers that begin with 0 to base 8, and those with : to base 60",
            remedy="write a number without leading zeros and colons, or a text in quotes",
        )


def _not_plain(node: yaml.Node, found: str) -> ConfigError:
    return ConfigError(
        "a value must be plain: text, a number, true, false, null, a list or a mapping",
        code="file-not-plain",
        where=_line(node),
        value=found,
    )


def too_deep() -> ConfigError:
    """Return the error about a file of so many levels that it has no nodes."""
    rule = f"at most {_MOST_DEPTH} levels"
    return _too_much(None, "levels beyond the limit of the reader", rule)


def _too_much(node: yaml.Node | None, found: str, rule: str) -> ConfigError:
    return ConfigError(
        "the file stands for too much",
        code="file-too-large",
        where=None if node is None else _line(node),
        value=found,
        rule=rule,
    )


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
