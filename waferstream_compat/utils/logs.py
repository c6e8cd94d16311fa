"""Loggers of the vendor's client, as loggers of the standard library."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from waferstream.core.errors import ConfigError, did_you_mean

logger = logging.getLogger("cerebras.appliance")
"""Logger of the client."""

wsc_logger = logging.getLogger("cerebras.wafer_scale_cluster")
"""Logger of the cluster; its children are the roles."""

LEVELS = {
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "VERBOSE": logging.DEBUG - 5,
    "TRACE": logging.DEBUG - 7,
    "NOTSET": logging.NOTSET,
}
"""Levels by name; the vendor has two below DEBUG."""

Class = TypeVar("Class", bound=type)


class ClassLogger:
    """Base of classes with a logger of their own, named by ``named_class_logger``."""

    _logger_name: str | None = None

    @property
    def logger(self) -> logging.Logger:
        """The logger of the class."""
        return logging.getLogger(self._logger_name or type(self).__name__)


def named_class_logger(name: str | type | None = None) -> Callable[[Class], Class]:
    """Return a class decorator that sets the name of the logger (default: that of the class)."""

    def decorate(cls: Class) -> Class:
        cls._logger_name = name if isinstance(name, str) else cls.__name__  # type: ignore[attr-defined]
        return cls

    if isinstance(name, type):
        return decorate(name)
    return decorate


def get_level_name(level: str | int) -> int:
    """Return the number of a level; ConfigError for an unknown name."""
    if isinstance(level, int):
        return level
    if level.upper() not in LEVELS:
        raise ConfigError(
            "the log level must be known",
            code="unknown-log-level",
            value=level,
            rule=f"one of {', '.join(LEVELS)}",
            remedy=did_you_mean(level.upper(), LEVELS),
        )
    return LEVELS[level.upper()]


def collect_wsc_log_settings() -> dict[str, int]:
    """Return the level of the cluster's logger and of every role with a level of its own."""
    prefix = f"{wsc_logger.name}."
    known = logging.Logger.manager.loggerDict
    found = {
        name.removeprefix(prefix): item.level
        for name, item in known.items()
        if name.startswith(prefix) and isinstance(item, logging.Logger) and item.level
    }
    return {"": wsc_logger.level, **found} if wsc_logger.level else found
