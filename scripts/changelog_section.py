"""Print one version's section of CHANGELOG.md: ``python scripts/changelog_section.py 0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def section(text: str, version: str) -> str:
    """Return the text below the heading of ``version``, without the heading.

    Raises:
        SystemExit: no heading ``## version`` exists, or its section is empty.
    """
    heading = rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?$"
    found = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section for version {version}")
    return found[1].strip()


if __name__ == "__main__":
    print(section(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]))
