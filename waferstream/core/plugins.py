"""What installed packages add to a run under names: models, data processors, optimizers, ...

A package offers them as entry points, in its pyproject.toml::

    [project.entry-points."waferstream.GROUP"]
    my_name = "my_package.my_module:MY_OBJECT"

Groups, and what a name of each stands for:
    models            a ``ModelFamily`` (waferstream.workload.models)
    data_processors   a subclass of ``DataProcessor`` (waferstream.workload.data)
    optimizers        a subclass of ``Rule`` (memoryx.optim.rule), by the name of its class
    loggers           a subclass of ``Logger`` (waferstream.training.observers.logger)
    callbacks         a class with hooks (waferstream.training.callback)
    converters        a ``Conversion`` of models (waferstream.workload.hugging_face)
    published_weights names and layouts of another zoo (waferstream.workload.published_weights)
    params            a folder of params files, as a ``Path``
    keys              a file of keys of models and data processors (waferstream.workload.known_keys)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from waferstream.core.errors import ConfigError, did_you_mean

_ZOO = "modelzoo"
_INSTALL_ZOO = "pip install 'waferstream[zoo]' (in a clone: pip install ./modelzoo)"

Plugin = TypeVar("Plugin")


class Plugins(Mapping[str, Plugin]):
    """The objects of a group by name; one is imported when it is asked for.

    The zoo's own names come first, so that a run on its models does not search what is installed.
    """

    def __init__(self, group: str) -> None:
        self._group = f"waferstream.{group}"

    def __getitem__(self, name: str) -> Plugin:
        entry = self._of_zoo().get(name) or self._entries()[name]
        try:
            plugin: Plugin = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"an installed package offers {name}, which cannot be imported",
                code="plugin-not-importable",
                where=f"entry point {entry.value} of {entry.group}",
                value=error,
                remedy="install what the package needs, or another version of it",
            ) from error
        return plugin

    def __contains__(self, name: object) -> bool:
        return name in self._of_zoo() or name in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def rule(self) -> str:
        """Which names there are, for an error."""
        return f"one of {', '.join(self)}" if self else "no installed package has any"

    def remedy(self, name: str, built_in: Iterable[str] = ()) -> str:
        """Return what to do about a name that nothing installed has, nor what is built in."""
        install = _INSTALL_ZOO if find_spec(_ZOO) is None else "install the package that has it"
        return did_you_mean(name, [*built_in, *self]) or install

    def _entries(self) -> dict[str, EntryPoint]:
        own = self._of_zoo()
        return own | _installed(self._group, tuple(sys.path)) | own

    def _of_zoo(self) -> dict[str, EntryPoint]:
        return _of_zoo(self._group, tuple(sys.path))


@cache
def _installed(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:  # noqa: ARG001
    """Return the entry points of a group, of all packages on a search path."""
    return {entry.name: entry for entry in entry_points(group=group)}


@cache
def _of_zoo(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:  # noqa: ARG001
    """Return those of the zoo, as its own file states them: in a clone nothing is installed."""
    zoo = find_spec(_ZOO)
    if zoo is None or zoo.origin is None:
        return {}
    found = Distribution.at(Path(zoo.origin).parent).entry_points
    return {entry.name: entry for entry in found.select(group=group)}
