"""Generated pages and schemas are those of the code."""

from __future__ import annotations

import pytest

from scripts.reference_pages import DOCS, pages


def test_pages_and_schemas_are_current() -> None:
    """Run ``python -m scripts.reference_pages`` after a change of keys, flags or commands."""
    stale = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    assert stale == []


@pytest.mark.parametrize("name", ["commands.md", "configuration.md"])
def test_head_of_a_table_follows_an_empty_line(name: str) -> None:
    """Otherwise it is shown as a row of the table before."""
    lines = pages()[DOCS / name].splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith("|---")]
    assert heads
    assert {lines[head - 2] for head in heads} == {""}
