"""The release notes are one section of the changelog."""

from __future__ import annotations

import pytest

from scripts.changelog_section import section

TEXT = (
    "# Changelog\n\n## Unreleased\n\nNew.\n\n## 0.2.0 - 2026-01-01\n\nOld.\n\n## 0.1.0\n\nFirst.\n"
)


@pytest.mark.parametrize(
    ("version", "expected"), [("Unreleased", "New."), ("0.2.0", "Old."), ("0.1.0", "First.")]
)
def test_section_is_found_by_version(version: str, expected: str) -> None:
    assert section(TEXT, version) == expected


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "1.0"])
def test_missing_section_ends_the_program(version: str) -> None:
    with pytest.raises(SystemExit):
        section(TEXT, version)
