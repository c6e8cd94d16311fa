"""Collect the constants of the timing models with value, status and source."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import get_annotations, getmembers, isclass
from types import ModuleType

from validation import published_programs
from validation.published_programs.releases import SPEED_BEFORE
from validation.report.tables import number
from waferstream import baselines, machine
from waferstream.core.config import Config
from waferstream.machine.hardware.sourced import Sourced


@dataclass(frozen=True)
class Constant:
    """Constant of the emulated machine; see ``waferstream.machine.hardware.sourced``."""

    holder: str
    """Configuration class or preset that declares it."""
    title: str
    """One line that describes the holder."""
    name: str
    value: object
    status: str
    source: str

    @property
    def rows(self) -> list[str]:
        """Ids of the published rows that the source names."""
        return re.findall(r"\b[KTNHIG]\d{4}\b", self.source)

    @property
    def shown(self) -> str:
        """Value for a table."""
        return number(self.value, 6) if isinstance(self.value, int | float) else str(self.value)

    def called(self, name: str) -> bool:
        """Return whether ``name`` is ``field`` or ``Holder.field`` of the constant."""
        return name in (self.name, f"{self.holder}.{self.name}")


def constants() -> tuple[Constant, ...]:
    """Return the constants of every configuration class and preset, by module.

    A subclass, or a preset that is a variant of another, has only the constants that it declares
    itself. A constant that several presets declare is listed with the first of them.
    """
    modules = [
        import_module(module.name)
        for package in (machine, baselines, published_programs)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    of_classes = [
        constant for module in modules for kind in _classes(module) for constant in _defaults(kind)
    ]
    title = "The vendor's software before its last great change"
    before = Constant(
        "releases", title, "SPEED_BEFORE", SPEED_BEFORE, "derived", "T0060 N0007 T0070 T0072"
    )
    return *of_classes, *_of_presets(modules), before


def _classes(module: ModuleType) -> list[type[Config]]:
    found = [
        kind
        for _, kind in getmembers(module, isclass)
        if issubclass(kind, Config) and kind.__module__ == module.__name__
    ]
    return sorted(found, key=lambda kind: len(kind.__mro__))


def _of_presets(modules: Iterable[ModuleType]) -> Iterator[Constant]:
    """Yield the constants of the presets in ``PRESETS`` of each module."""
    seen: set[tuple[str, Sourced]] = set()
    for module in modules:
        for holder, preset in getattr(module, "PRESETS", {}).items():
            for name, stated in preset.stated.items():
                if (name, stated) not in seen:
                    seen.add((name, stated))
                    yield Constant(holder, preset.title, name, *stated)


def _defaults(kind: type[Config]) -> Iterator[Constant]:
    title = (kind.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    for name in get_annotations(kind):
        field = kind.model_fields.get(name)
        if field is not None and isinstance(field.json_schema_extra, dict):
            status = str(field.json_schema_extra["status"])
            source = field.description or ""
            yield Constant(kind.__name__, title, name, field.default, status, source)
