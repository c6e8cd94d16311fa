"""Schemas are those of the code, and generated pages are Markdown that shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.reference_pages import commands_page, configuration_page, schemas, write_pages


def test_schemas_are_current() -> None:
    """Run ``python -m scripts.reference_pages`` after a change of keys."""
    stale = [path.name for path, text in schemas().items() if path.read_text("utf-8") != text]
    assert stale == []


@pytest.mark.parametrize("page", [commands_page, configuration_page])
def test_head_of_a_table_follows_an_empty_line(page: Callable[[], str]) -> None:
    """Otherwise it is shown as a row of the table before."""
    lines = page().splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith("|---")]
    assert heads
    assert {lines[head - 2] for head in heads} == {""}


def test_pages_are_written_to_a_folder(tmp_path: Path) -> None:
    write_pages(tmp_path)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
    assert {"configuration.md", "commands.md", "ops.md", "errors/two-loops.md"} <= written
