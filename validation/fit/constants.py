"""All constants of the timing models with value, status and source."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import get_annotations, getmembers, isclass

import baselines
import timing
from validation import published_programs
from validation.report.tables import number
from wsc.core.config import Config


@dataclass(frozen=True)
class Constant:
    """A number of the emulated machine; see ``timing.hardware.sourced``."""

    holder: str
    """The class of configuration that it is a default of."""
    title: str
    """What that class describes."""
    name: str
    value: object
    status: str
    source: str

    @property
    def rows(self) -> list[str]:
        """Ids of the reference rows that the source names."""
        return re.findall(r"\b[KTG]\d{4}\b", self.source)

    @property
    def shown(self) -> str:
        """The value for a table."""
        return number(self.value, 6) if isinstance(self.value, int | float) else str(self.value)

    def called(self, name: str) -> bool:
        """Whether ``name`` is that of the constant, alone or after its holder's."""
        return name in (self.name, f"{self.holder}.{self.name}")


def constants() -> tuple[Constant, ...]:
    """Return the constants of every configuration class that holds any, by module.

    A class that specialises another, as ``Cs3Spec`` does, has only what it states itself.
    """
    return tuple(constant for kind in _classes() for constant in _stated(kind))


def _classes() -> Iterator[type[Config]]:
    modules = (
        module
        for package in (timing, baselines, published_programs)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    )
    for module in modules:
        members = getmembers(import_module(module.name), isclass)
        of_module = [
            kind
            for _, kind in members
            if issubclass(kind, Config) and kind.__module__ == module.name
        ]
        yield from sorted(of_module, key=lambda kind: len(kind.__mro__))


def _stated(kind: type[Config]) -> Iterator[Constant]:
    title = (kind.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    for name in get_annotations(kind):
        field = kind.model_fields.get(name)
        if field is not None and isinstance(field.json_schema_extra, dict):
            status = str(field.json_schema_extra["status"])
            source = field.description or ""
            yield Constant(kind.__name__, title, name, field.default, status, source)
