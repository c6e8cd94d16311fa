"""The grid of a study: the keys that vary, their values as they are typed, and how many points.

    --machine.swarmx.fan_out 2,4,8    --num_csx 1-64:x2    --model.hidden_size 768-2048:+256

Values are separated by commas. Each is a scalar of YAML, or a range of whole numbers: with both
ends, with a factor (``:x2``) or with a step (``:+256``). Ranges stay ranges, so that a grid of any
size is counted without being built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod

import yaml

from waferstream.core.errors import ConfigError
from waferstream.core.units import counted
from waferstream.management.model.inventory import MOST_SYSTEMS
from waferstream.studies.keys import Key, parse_key

MOST_POINTS = 100_000
"""Points of a study; a grid with more is refused before anything is computed."""

Scalar = str | int | float | bool | None

_NUMBER = r"\d{1,18}"
_RANGE = re.compile(
    f"(?P<first>{_NUMBER})-(?P<last>{_NUMBER})(?::(?P<how>[x+])(?P<by>{_NUMBER}))?", re.ASCII
)


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes, in the order in which they are given."""

    key: Key
    values: Sequence[Scalar]

    @classmethod
    def parse(cls, name: str, text: str) -> Axis:
        """Return the axis that a key and the text of its values stand for.

        Raises:
            ConfigError: There is no such key, or the values cannot be parsed.
        """
        key = parse_key(name)
        parts = [_values(part.strip(), text, name) for part in text.split(",")]
        if len(parts) == 1:
            return cls(key, parts[0])
        if sum(map(len, parts)) > MOST_POINTS:
            return cls(key, range(sum(map(len, parts))))  # too many, as its grid will say
        return cls(key, tuple(dict.fromkeys(chain.from_iterable(parts))))


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of some axes; the last axis varies fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def parse(cls, typed: Mapping[str, str]) -> Grid:
        """Return the grid of keys with the texts of their values.

        Raises:
            ConfigError: A key or a value is wrong, or there are too many points.
        """
        return cls(tuple(Axis.parse(name, text) for name, text in typed.items()))

    @classmethod
    def of(cls, values: Mapping[str, Sequence[Scalar]]) -> Grid:
        """Return the grid of keys with their values; errors as of ``parse``."""
        return cls(tuple(Axis(parse_key(name), given) for name, given in values.items()))

    def __post_init__(self) -> None:
        for axis in self.axes:
            _check_values(axis)
        if self.num_points > MOST_POINTS:
            raise ConfigError(
                f"the study has {self.num_points:,} points",
                code="study-too-large",
                where=", ".join(axis.key.name for axis in self.axes),
                value=self.size_text,
                rule=f"at most {MOST_POINTS:,} points",
                remedy="give fewer values, or ranges with a factor, as in 1-2048:x2",
            )

    @property
    def num_points(self) -> int:
        """How many combinations there are."""
        return prod(len(axis.values) for axis in self.axes)

    @property
    def size_text(self) -> str:
        """How many points there are, and of what."""
        if len(self.axes) < 2:
            return counted(self.num_points, "point")
        factors = " x ".join(f"{len(axis.values):,} {axis.key.name}" for axis in self.axes)
        return f"{factors} = {counted(self.num_points, 'point')}"

    @property
    def varying(self) -> tuple[Axis, ...]:
        """The axes with more than one value."""
        return tuple(axis for axis in self.axes if len(axis.values) > 1)

    def points(self) -> Iterator[dict[Key, Scalar]]:
        """Yield the values of every point by key."""
        keys = [axis.key for axis in self.axes]
        for values in product(*(axis.values for axis in self.axes)):
            yield dict(zip(keys, values, strict=True))


def _check_values(axis: Axis) -> None:
    """Raise ConfigError unless there are values, and a key of no file has those it can have."""
    values, home = axis.values, axis.key.home
    if not values:
        raise _wrong(axis.key.name, "no value", "one value at least")
    ends = (values[0], values[-1]) if isinstance(values, range) else values
    if home == "scaling":
        allowed, rule = all(value in ("strong", "weak") for value in ends), "strong, weak"
    elif home == "num_csx":
        allowed = all(type(value) is int and 1 <= value <= MOST_SYSTEMS for value in ends)
        rule = f"whole numbers from 1 to {MOST_SYSTEMS:,}"
    else:
        return
    if not allowed:
        raise _wrong(axis.key.name, ", ".join(map(str, ends)), rule)


def _values(part: str, text: str, name: str) -> Sequence[Scalar]:
    found = _RANGE.fullmatch(part)
    if found is None:
        return (_scalar(part, text, name),)
    first, last, by = int(found["first"]), int(found["last"]), int(found["by"] or 1)
    multiplies = found["how"] == "x"
    if first > last or by < (2 if multiplies else 1) or (multiplies and first < 1):
        raise _wrong(name, f"range {part!r} in {text!r}", "ranges ascend, as 1-64:x2 or 8-64:+8")
    if not multiplies:
        return range(first, last + 1, by)
    values = [first]
    while values[-1] * by <= last:
        values.append(values[-1] * by)
    return values


def _scalar(part: str, text: str, name: str) -> Scalar:
    try:
        value = yaml.safe_load(part)
    except yaml.YAMLError as error:
        raise _wrong(name, f"{part!r} in {text!r}", "scalars of YAML, between commas") from error
    if not part or not isinstance(value, str | int | float | bool | None):
        raise _wrong(name, f"{part or 'nothing'!r} in {text!r}", "scalars, between commas")
    return _number(value) if isinstance(value, str) else value


def _number(text: str) -> str | float:
    """Return a number that YAML 1.1 reads as a word, ``1e9``; the word itself otherwise."""
    return float(text) if re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", text) else text


def _wrong(name: str, value: str, rule: str) -> ConfigError:
    return ConfigError(
        f"the values of {name} cannot be parsed",
        code="study-values-invalid",
        where=name,
        value=value,
        rule=rule,
        remedy="as in 2,4,8 or 1-64:x2 or 8-64:+8 or CS-2,CS-3",
    )
