"""Speed of each release of the vendor's software on the same model and system.

Throughput changes more from release to release than most errors of the timing model, so a fit must
not mix releases. A speed is relative to the release that ``WaferSpec`` was fitted to. There is one
for each release with a calibration row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from waferstream.core.errors import ConfigError

Release = tuple[int, ...]

_NUMBER = re.compile(r"(?:R|rel-|release[ _])?(\d{1,2}(?:\.\d+)+)(?:\+\S*)?", re.IGNORECASE)


@dataclass(frozen=True)
class ReleaseSpeed:
    """Fitted speed of one release on one system, with its calibration row."""

    system: str
    release: Release
    speed: float
    source: str

    @property
    def name(self) -> str:
        """Name among the fitted constants."""
        return release_name(self.system, self.release)


RELEASE_SPEEDS = (
    ReleaseSpeed("CS-2", (1, 9, 2), 0.714, "T0060"),
    ReleaseSpeed("CS-2", (2, 1, 1), 0.729, "T0062"),
    ReleaseSpeed("CS-3", (2, 5), 1.889, "T0074"),
)


def release_name(system: str, release: Release) -> str:
    """Return the constant's name of a release, such as ``cs2_r1_9_2``."""
    return f"{system.lower().replace('-', '')}_r{'_'.join(map(str, release))}"


def release_of(text: str) -> Release | None:
    """Return the release that a log names (``R2.1.1``, ``rel-2.4``, ``2.4.0+build``).

    None if the text names no release, or a date instead.
    """
    found = _NUMBER.fullmatch(text)
    return tuple(map(int, found[1].split("."))) if found else None


def software_speed(system: str, release: Release) -> float:
    """Return the speed of the newest fitted release on ``system`` that is not after ``release``.

    Raises:
        ConfigError: Every fitted release is newer. Speeds changed most between early releases, so
            none of the fitted ones applies.
    """
    fitted = {one.release: one.speed for one in RELEASE_SPEEDS if one.system == system}
    known = [candidate for candidate in fitted if candidate <= release]
    if not known:
        raise ConfigError(
            "a release must not be older than the first one with a calibration row",
            code="release-not-calibrated",
            value=".".join(map(str, release)),
            rule=f"{system}: from {'.'.join(map(str, min(fitted)))} on",
        )
    return fitted[max(known)]
