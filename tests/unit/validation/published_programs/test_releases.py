"""Speeds of software releases."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from validation.published_programs.releases import (
    SPEED_BEFORE,
    before_last_change,
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


def test_software_speed_changes_once() -> None:
    """Rows that name no release are taken for later ones."""
    assert software_speed((1, 9, 2)) == software_speed((2, 0, 3)) == SPEED_BEFORE
    assert software_speed((2, 1, 1)) == software_speed((2, 6)) == software_speed(None) == 1
    assert before_last_change((2, 0, 3))
    assert not before_last_change(None)


def test_software_speed_refuses_releases_before_the_known_ones() -> None:
    """Releases 1.7 and 1.8 differ by a quarter on one model."""
    with raises(ConfigError, "release-not-calibrated") as caught:
        software_speed((1, 8, 0))
    assert caught.value.value == "1.8.0"
    assert "1.9.2" in str(caught.value.rule)
