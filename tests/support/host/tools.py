"""Commands of ``waferstream`` beside runs, as a user types them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from waferstream.cli.main import main


def tool(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """Run a command that ends with this exit code; return what it prints."""
    found = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert found == code, err
    return out if code == 0 or not err else err


def rows(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    """Return the rows that a command prints as JSON."""
    found: list[dict[str, Any]] = json.loads(tool(capsys, *words, "--json"))
    return found


def fields(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """Return the fields of a summary that a command prints as JSON."""
    return {row["field"]: row["value"] for row in rows(capsys, *words)}
