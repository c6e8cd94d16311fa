"""Packages of the extra ``serve``, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from waferstream.core.errors import ConfigError


def serve_package(name: str) -> Any:
    """Return a package.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "serving must have its packages",
            code="serve-not-installed",
            value=name,
            remedy="pip install 'waferstream[serve]'",
        ) from error
