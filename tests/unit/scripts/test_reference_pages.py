"""Generated pages and schemas are those of the code."""

from __future__ import annotations

from scripts.reference_pages import pages


def test_pages_and_schemas_are_current() -> None:
    """Run ``python -m scripts.reference_pages`` after a change of keys, flags or commands."""
    stale = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    assert stale == []
