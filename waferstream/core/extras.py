"""Packages that only an extra of the distribution brings, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from waferstream.core.errors import ConfigError

TRAINING = (
    *("alembic", "cloudpickle", "cryptography", "google", "grpc", "h5py", "pathspec"),
    *("ray", "sqlalchemy", "tensorboardX"),
)
"""Packages of the extra ``train``, by the names that are imported; a simulation imports none."""


class LazyPackage:
    """A package that an extra brings, imported when the first of its names is read.

    Args:
        name: What is imported.
        extra: The extra that brings it.
    """

    def __init__(self, name: str, extra: str) -> None:
        self._name, self._extra = name, extra

    def __getattr__(self, name: str) -> Any:
        value = getattr(extra_package(self._name, self._extra), name)
        setattr(self, name, value)
        return value


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
        raise _not_installed(error, extra) from error


def of_training(error: ModuleNotFoundError) -> ConfigError | None:
    """Return the error of a package that training needs, None for other packages."""
    package = (error.name or "").partition(".")[0]
    return _not_installed(error, "train") if package in TRAINING else None


def _not_installed(error: ModuleNotFoundError, extra: str) -> ConfigError:
    return ConfigError(
        "what was asked for needs a package that is not installed",
        code="extra-not-installed",
        value=error.name,
        rule=f"it is of the extra {extra}",
        remedy=f"pip install 'waferstream[{extra}]' (in a clone: pip install '.[{extra}]')",
    )
