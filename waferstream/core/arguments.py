"""Check the numbers that a caller passes."""

from __future__ import annotations

from waferstream.core.errors import ConfigError


def check_least(owner: str, least: int = 1, **numbers: int) -> None:
    """Raise ConfigError for the first of an owner's ``numbers`` that is below ``least``."""
    for name, value in numbers.items():
        if value < least:
            raise ConfigError(
                f"{name} of {owner} must be at least {least}; got {value}",
                code="number-too-small",
                where=name,
                value=value,
                rule=f"at least {least}",
            )
