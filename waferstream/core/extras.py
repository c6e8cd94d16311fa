"""Packages that only an extra of the distribution brings, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from waferstream.core.errors import ConfigError


def extra_package(name: str, extra: str) -> Any:
    """Return a package, or a module of one.

    Args:
        name: What is imported.
        extra: The extra that brings it.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "what was asked for needs a package that is not installed",
            code="extra-not-installed",
            value=error.name,
            remedy=f"pip install 'waferstream[{extra}]'",
        ) from error
