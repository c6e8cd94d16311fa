"""Features of the vendor's software that would change results and do not exist here.

Their names can be imported, since public programs import them whether they use them or not; a call
is refused with an error.
"""

from __future__ import annotations

from typing import Any, NoReturn

from waferstream.core.errors import ConfigError


class FeatureNotHereError(ConfigError):
    """A feature of the vendor's software that this project does not have."""


def refused(name: str, remedy: str) -> type[Any]:
    """Return a class of that name which cannot be made.

    Args:
        name: Full name of the vendor's function or class.
        remedy: What to do instead.
    """

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise FeatureNotHereError(
            f"{name} does not exist in WaferStream",
            code="feature-not-here",
            where=name,
            rule="docs/compatibility.md lists what exists",
            remedy=remedy,
        )

    last = name.rpartition(".")[2]
    return type(last, (), {"__new__": refuse, "__doc__": f"Refused when called: {remedy}."})
