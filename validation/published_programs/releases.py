"""How fast each release of the vendor's software runs the same model on the same system.

Releases move throughput more than most errors of a model do, so that no two may be mixed in one
fit. A factor is the speed in relation to what ``WaferSpec`` was fitted to; there is one for each
release with a calibration row.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import PositiveFloat

from timing.hardware.sourced import sourced
from wsc.core.config import Config
from wsc.core.errors import ConfigError

Release = tuple[int, ...]

_NUMBER = re.compile(r"(?:R|rel-|release[ _])?(\d{1,2}(?:\.\d+)+)(?:\+\S*)?", re.IGNORECASE)


class ReleaseSpeeds(Config):
    """Fitted speeds."""

    cs2_r1_9_2: PositiveFloat = sourced(0.714, "fitted", "T0060")
    cs2_r2_1_1: PositiveFloat = sourced(0.729, "fitted", "T0062")
    cs3_r2_5: PositiveFloat = sourced(1.889, "fitted", "T0074")


RELEASE_SPEEDS = ReleaseSpeeds()


def release_of(text: str) -> Release | None:
    """The release that a log names (``R2.1.1``, ``rel-2.4``, ``2.4.0+build``).

    None if it names none, or a date instead.
    """
    found = _NUMBER.fullmatch(text)
    return tuple(map(int, found[1].split("."))) if found else None


def software_speed(system: str, release: Release) -> float:
    """The factor of a release on a ``CS-2`` or ``CS-3``: that of the newest one fitted by then.

    Raises ConfigError for a release before all that were fitted: drift is largest there.
    """
    prefix = f"{system.lower().replace('-', '')}_r"
    fitted: dict[Release, Any] = {
        tuple(map(int, name.removeprefix(prefix).split("_"))): getattr(RELEASE_SPEEDS, name)
        for name in ReleaseSpeeds.model_fields
        if name.startswith(prefix)
    }
    known = [candidate for candidate in fitted if candidate <= release]
    if not known:
        raise ConfigError(
            "no calibration row of this release or one before",
            value=".".join(map(str, release)),
            rule=f"{system}: from {'.'.join(map(str, min(fitted)))} on",
        )
    return float(fitted[max(known)])
