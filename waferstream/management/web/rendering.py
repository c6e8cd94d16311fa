"""Templates of the pages, with the words in which they state times and numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from waferstream.core.units import format_bytes, format_rate


def rendered(name: str, given: Mapping[str, Any]) -> str:
    """Return a page, or a part of one, as HTML; all that is given is escaped."""
    return _ENVIRONMENT.get_template(f"{name}.html.jinja").render(**given)


def duration(duration_s: float) -> str:
    """Return a duration in two units: ``"2 h 5 min"``."""
    left_s = max(0, round(duration_s))
    parts: list[str] = []
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left_s = divmod(left_s, unit_s)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join([part for part in parts[:2] if not part.startswith("0 ")]) or "0 s"


def clock(time_s: float) -> str:
    """Return the time of day of the host of the management, with the day where it is another."""
    at, now = time.localtime(time_s), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == now[:3] else "%d %b %H:%M", at)


def number(value: float | None) -> str:
    """Return a number with four digits, a dash without one."""
    return "-" if value is None else format_rate(value)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("waferstream.management.web", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": format_bytes,
        "clock": clock,
        "duration": duration,
        "number": number,
    }
    return environment


_ENVIRONMENT = _environment()
