"""Whether programs can import the vendor's modules."""

from __future__ import annotations

from importlib.util import find_spec

from waferstream.core.errors import ConfigError

VENDOR_NAMES = "waferstream_compat.import_hook"
"""Module that lets a program import the vendor's modules."""


def check_vendor_names() -> None:
    """Raise ConfigError where a program cannot import the vendor's names."""
    if find_spec(VENDOR_NAMES.partition(".")[0]) is None:
        raise ConfigError(
            "the vendor's names must be installed for programs that import them",
            code="package-missing",
            where="waferstream exec",
            value="waferstream_compat",
            remedy="pip install 'waferstream[compat]' (in a clone: "
            "pip install ./waferstream_compat)",
        )
