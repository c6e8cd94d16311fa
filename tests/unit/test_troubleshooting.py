"""docs/troubleshooting.md names codes that there are, and those of all mistakes of the table."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.mistakes.page import PAGE, kept_answers, page_text

ROOT = Path(__file__).parents[2]
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
_QUOTED = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"')
_ROW = re.compile(r"^\| (`[^|]*)\|", re.MULTILINE)


def _codes() -> set[str]:
    rows = _ROW.findall(TROUBLESHOOTING.read_text(encoding="utf-8"))
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_codes_of_the_page_exist() -> None:
    packages = (path.parent for path in ROOT.glob("*/__init__.py"))
    sources = (path.read_text(encoding="utf-8") for each in packages for path in each.rglob("*.py"))
    stated = {code for source in sources for code in _QUOTED.findall(source)}
    assert _codes() <= stated


def test_codes_of_mistakes_have_a_row() -> None:
    texts = [answer["text"] for answers in kept_answers().values() for answer in answers]
    found = {code for text in texts for code in re.findall(r"\[([a-z0-9]+(?:-[a-z0-9]+)+)\]", text)}
    assert found <= _codes()


def test_page_of_mistakes_is_made_of_the_answers() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text()
