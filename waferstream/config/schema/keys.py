"""The keys of params.yaml and cluster.yaml, listed from their schemas: type, default, source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from waferstream.config.schema.files import FileKind, Schema, schema_of
from waferstream.core.config_errors import unknown
from waferstream.core.errors import ConfigError

_NO_DEFAULT = object()
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_TYPES = {"object": "mapping", "null": "null"}


@dataclass(frozen=True)
class ConfigKey:
    """A key of a configuration file."""

    file: FileKind
    path: str
    """Dotted path: ``runtime.link``. Entries of a list have the path of the list."""
    section: str
    """Class that declares the key, with the registered names for which it holds."""
    about: str
    """What the section is for."""
    type: str
    default: str
    """Value of a file that leaves the key out; empty where the key is required."""
    unit: str
    meaning: str
    status: str
    source: str
    """Where a number of the emulated machine comes from."""

    @property
    def name(self) -> str:
        """Last part of the path; flags have dots in their names."""
        parent, _, name = self.path.rpartition(".csx.")
        return f"csx.{name}" if parent else self.path.rpartition(".")[2]

    @property
    def place(self) -> str:
        """Path of the section that the key is in; empty at the top of the file."""
        return self.path.removesuffix(self.name).removesuffix(".")


def all_keys() -> tuple[ConfigKey, ...]:
    """Return the keys of both files, in the order of their sections."""
    kinds: tuple[FileKind, ...] = get_args(FileKind)
    return tuple(key for kind in kinds for key in keys_of(kind))


def keys_of(kind: FileKind) -> tuple[ConfigKey, ...]:
    """Return the keys of a file, each section after the key that holds it."""
    schema = schema_of(kind)
    walk = _Walk(kind, schema["$defs"])
    return tuple({(key.path, key.section): key for key in walk.section(schema, "")}.values())


def find_keys(name: str, keys: Sequence[ConfigKey]) -> list[ConfigKey]:
    """Return the keys of a dotted path, or of the end of one.

    Raises:
        ConfigError: There is no such key; the error names the nearest one.
    """
    exact = [key for key in keys if key.path == name]
    found = exact or [key for key in keys if key.path.endswith(f".{name}")]
    if found:
        return found
    words = {key.path for key in keys} if "." in name else {key.name for key in keys}
    raise _unknown_key(name, sorted(words))


def _unknown_key(name: str, words: Sequence[str]) -> ConfigError:
    return unknown(f"key {name!r}", "keys", name, words, "params.yaml and cluster.yaml")


@dataclass(frozen=True)
class _Walk:
    """A walk over the schema of one file."""

    file: FileKind
    definitions: Mapping[str, Schema]

    def section(
        self, section: Schema, prefix: str, names: str = "", above: frozenset[str] = frozenset()
    ) -> Iterator[ConfigKey]:
        """Yield the keys of a mapping and of the mappings in it."""
        needed = section.get("required", ())
        for name, entry in section.get("properties", {}).items():
            path = f"{prefix}{name}"
            if name == section.get("title"):
                yield self._class(path, section)
            else:
                yield self._key(path, entry, section, names, is_needed=name in needed)
            yield from self._below(entry, f"{path}.", above)
        for choice in section.get("allOf", ()):
            (named,) = choice["if"]["properties"].values()
            own = self._resolved(choice["then"])
            yield from self.section(own, prefix, ", ".join(named["enum"]), above)

    def _below(self, entry: Schema, prefix: str, above: frozenset[str]) -> Iterator[ConfigKey]:
        choices = list(self._choices(entry))
        refs = {each["$ref"] for each in choices if "$ref" in each}
        for each in choices:
            if each.get("$ref") not in above:
                yield from self.section(self._resolved(each), prefix, above=above | refs)

    def _choices(self, entry: Schema) -> Iterator[Schema]:
        """Yield the mappings that a key may hold, alone or in a list."""
        for union in ("anyOf", "oneOf"):
            for each in entry.get(union, ()):
                yield from self._choices(each)
        if "items" in entry:
            yield from self._choices(entry["items"])
        if "$ref" in entry and any(u in self._resolved(entry) for u in ("anyOf", "oneOf")):
            yield from self._choices(self._resolved(entry))
        elif "title" in self._resolved(entry):
            yield entry

    def _resolved(self, entry: Schema) -> Schema:
        name = entry.get("$ref")
        return self.definitions[name.rpartition("/")[2]] if name else entry

    def _class(self, path: str, section: Schema) -> ConfigKey:
        """Return the key that names a class, whose value are its arguments."""
        return ConfigKey(
            file=self.file,
            path=path,
            section=f"Classes of {path.rpartition('.')[0]}",
            about="",
            type="mapping",
            default="",
            unit="",
            meaning=" ".join(section["description"].split()),
            status="",
            source="",
        )

    def _key(
        self, path: str, entry: Schema, section: Schema, names: str, *, is_needed: bool
    ) -> ConfigKey:
        title = section.get("title", "")
        return ConfigKey(
            file=self.file,
            path=path,
            section=f"{title} ({names})" if names else title,
            about=" ".join(section.get("description", "").split()),
            type=self._type(entry),
            default="" if is_needed else _default(entry),
            unit=entry.get("x-unit", ""),
            meaning=entry.get("description") or "",
            status=entry.get("x-status", ""),
            source=entry.get("x-source", ""),
        )

    def _type(self, entry: Schema) -> str:
        """Return the values that a key may have, in words."""
        if "$ref" in entry:
            own = self._resolved(entry)
            is_union = "anyOf" in own or "oneOf" in own
            return "mapping" if is_union else str(own.get("title", "mapping"))
        if "enum" in entry:
            return ", ".join(map(_text, entry["enum"]))
        if "const" in entry:
            return _text(entry["const"])
        if union := entry.get("anyOf") or entry.get("oneOf"):
            return " or ".join(_alternatives(map(self._type, union)))
        if entry.get("type") == "array":
            return _list_of(self._type(entry["items"])) if entry.get("items") else "list"
        kind = str(entry.get("type", "any"))
        bounds = [f"{word} {_text(entry[key])}" for key, word in _BOUNDS.items() if key in entry]
        return " ".join([_TYPES.get(kind, kind), ", ".join(bounds)]).strip()


def _list_of(items: str) -> str:
    return f"list of ({items})" if " or " in items else f"list of {items}"


def _alternatives(kinds: Iterable[str]) -> Iterator[str]:
    """Yield each kind once; where a union is named, a list of it behind it is one of "these"."""
    once = dict.fromkeys(kinds)
    lists = set(map(_list_of, once))
    for kind in once:
        if kind not in lists:
            yield kind
            if _list_of(kind) in once:
                yield "list of these" if " or " in kind else _list_of(kind)


def _default(entry: Schema) -> str:
    if "x-defaults" in entry:
        values = {name: _text(value) for name, value in entry["x-defaults"].items()}
        if len(set(values.values())) == 1:
            return next(iter(values.values()))
        return ", ".join(f"{name}: {value}" for name, value in values.items())
    given = entry.get("default", _NO_DEFAULT)
    return "" if given is _NO_DEFAULT else _text(given)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
