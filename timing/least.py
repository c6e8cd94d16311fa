"""The least that a number may be, told alike wherever a caller gives numbers."""

from __future__ import annotations

from wsc.core.errors import ConfigError


def check_least(owner: str, least: int = 1, **numbers: int) -> None:
    """Raises ConfigError that names the first of an owner's ``numbers`` that is below ``least``."""
    for name, value in numbers.items():
        if value < least:
            raise ConfigError(
                f"{name} of {owner} is too small",
                where=name,
                value=value,
                rule=f"at least {least}",
            )
