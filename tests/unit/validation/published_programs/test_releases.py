"""Speeds of software releases."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from validation.published_programs.releases import (
    RELEASE_SPEEDS,
    release_of,
    software_speed,
)
from waferstream.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("R2.1.1", (2, 1, 1)),
        ("R2.5", (2, 5)),
        ("2.4.0", (2, 4, 0)),
        ("rel-2.4", (2, 4)),
        ("Release_2.4.0", (2, 4, 0)),
        ("R2.4.0+a2", (2, 4, 0)),
        ("", None),
        ("2024-04", None),
        ("2024.04", None),
        ("2.x", None),
    ],
)
def test_release_of_reads_the_number_of_a_release(
    text: str, release: tuple[int, ...] | None
) -> None:
    """A prefix of logs and tags is allowed; a date is not a release."""
    assert release_of(text) == release


def test_software_speed_is_that_of_the_newest_fitted_release() -> None:
    """A speed holds until the next fitted release."""
    speeds = {one.name: one.speed for one in RELEASE_SPEEDS}
    assert software_speed("CS-2", (1, 9, 2)) == speeds["cs2_r1_9_2"]
    assert software_speed("CS-2", (2, 0, 3)) == speeds["cs2_r1_9_2"]
    assert software_speed("CS-2", (2, 3, 0)) == speeds["cs2_r2_1_1"]
    assert software_speed("CS-3", (2, 6)) == speeds["cs3_r2_5"]


def test_software_speed_refuses_releases_before_the_fitted_ones() -> None:
    """Releases 1.7 and 1.8 differ by a quarter on one model, and neither can be fitted."""
    with raises(ConfigError, "release-not-calibrated") as caught:
        software_speed("CS-2", (1, 8, 0))
    assert caught.value.value == "1.8.0"
    assert "1.9.2" in str(caught.value.rule)
