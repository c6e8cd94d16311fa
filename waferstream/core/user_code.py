"""Code of the user's own that a file names by its import path, ``package.module:Name``.

It is searched beside the file and in the working folder. What it extends says what it must be: a
model, a loss and a data loader are any callable; a topology, costs of kernels, a micro-batch policy
are classes derived from one of this project.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from waferstream.core.errors import ConfigError, did_you_mean

USER_CODE = "WAFERSTREAM_USER_CODE"
"""Environment variable; ``refuse`` for params files of strangers, so that they run no code."""

IMPORT_PATH = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""Pattern of an import path where a file may have other words, too."""


def is_refused() -> bool:
    """Return whether the environment refuses code that files name or bring with them."""
    return os.environ.get(USER_CODE) == "refuse"


def import_class(path: object, where: str) -> Callable[..., Any]:
    """Import what can be called; errors as of ``import_object``."""
    found = import_object(path, where)
    if not callable(found):
        name = str(path).rpartition(":")[2]
        raise _not_importable(path, where, f"{name} is a {type(found).__name__}", None)
    function: Callable[..., Any] = found
    return function


def import_derived(path: str, base: type[Any], where: str) -> type[Any]:
    """Import a class that is derived from ``base``.

    Raises:
        ConfigError: It is not, or it cannot be imported.
    """
    found = import_object(path, where)
    if isinstance(found, type) and issubclass(found, base):
        return found
    raise ConfigError(
        f"{path!r} must be a class derived from {base.__name__}",
        code="extension-of-wrong-kind",
        where=where,
        value=found,
        rule=f"class Name({base.__name__}), of {base.__module__}",
        remedy=f"derive it from {base.__name__}; examples/extensions.py has one of each kind",
    )


def import_object(path: object, where: str) -> Any:
    """Import ``package.module:Name`` or ``package.module.Name``.

    Raises:
        ConfigError: There is no such module or name, or the environment refuses code that files
            name.
    """
    if is_refused():
        raise ConfigError(
            "the file must not name code of its own",
            code="user-code-refused",
            where=where,
            value=path,
            rule=f"the environment has {USER_CODE}=refuse",
            remedy="choose a registered model and data processor, or trust the file",
        )
    module, colon, name = str(path).partition(":")
    if not colon:
        module, _, name = str(path).rpartition(".")
    if not (module and name and all(part.isidentifier() for part in module.split("."))):
        raise _not_importable(path, where, "no module", None)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the user's module lacks another one
        raise _not_importable(path, where, error, None) from error
    for part in name.split("."):
        known = dir(found)
        found = getattr(found, part, None)
        if found is None:
            value = f"{module} ({_file_of(module)}) has no {name}"
            raise _not_importable(path, where, value, did_you_mean(part, known))
    return found


def _file_of(module: str) -> str:
    return getattr(import_module(module), "__file__", None) or "a package without files"


def _not_importable(path: object, where: str, value: object, remedy: str | None) -> ConfigError:
    return ConfigError(
        f"{path!r} must name a class or a function that can be imported",
        code="class-not-importable",
        where=where,
        value=value,
        rule="package.module:Name, searched beside the params file and in the working folder",
        remedy=remedy,
    )
