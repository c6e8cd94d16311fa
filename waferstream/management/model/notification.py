"""Whom a user wants told about a workflow (``cluster_config.notifications``)."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from waferstream.core.config import Config


class Severity(IntEnum):
    """How bad it is what has happened; less is worse."""

    FAILURE = 1
    PAUSE = 2
    """It goes on, later or on other systems."""

    END = 3


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value or ()


_Address = Annotated[str, StringConstraints(pattern=r"^[^\s@<>,;]+@[^\s@<>,;]+$", max_length=254)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=2000)]
_Key = Annotated[str, StringConstraints(pattern=r"^\w+$", max_length=100)]


class Notification(Config):
    """Whom to tell, and from which severity on."""

    mailto: Annotated[tuple[_Address, ...], BeforeValidator(_as_list)] = ()
    """Addresses of mail."""

    slack: Annotated[tuple[_Url, ...], BeforeValidator(_as_list)] = ()
    """Addresses of incoming webhooks."""

    pagerduty: Annotated[tuple[_Key, ...], BeforeValidator(_as_list)] = ()
    """Integration keys of services."""

    severity_threshold: int = Field(default=Severity.END, ge=Severity.FAILURE, le=Severity.END)
    """1 tells of failures, 2 of pauses, too, 3 of every end."""
