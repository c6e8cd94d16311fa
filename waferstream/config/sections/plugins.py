"""Entries of params.yaml for what installed packages offer: ``{Name: {arguments}}``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, get_args

from pydantic import ConfigDict

from waferstream.config.sections.section import Section, class_name
from waferstream.core.plugins import Plugins


class Plugin(Section):
    """Base of the entries of a group of plugins; the class that a name stands for has the keys."""

    model_config = ConfigDict(extra="allow")

    plugins: ClassVar[Plugins[Callable[..., object]]]

    __pydantic_extra__: dict[str, dict[str, Any] | None]

    @classmethod
    def class_names(cls) -> tuple[str, ...]:
        """Return the names that an entry may have."""
        return tuple(cls.plugins)


class CallbackPlugin(Plugin):
    """A callback of an installed package."""

    plugins = Plugins("callbacks")


class LoggerPlugin(Plugin):
    """A logger of an installed package."""

    plugins = Plugins("loggers")


def tag_of(value: object, union: Any, plugin: type[Plugin]) -> str | None:
    """Return the member of a tagged union that reads an entry: the plugin for names of packages."""
    name = class_name(value)
    own = {get_args(member)[0].__name__ for member in get_args(get_args(union)[0])}
    if isinstance(value, plugin) or (
        name is not None and name not in own and name in plugin.plugins
    ):
        return plugin.__name__
    return name
