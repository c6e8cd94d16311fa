"""Tables as text, Markdown and comma-separated values."""

from __future__ import annotations

import csv
import io

from validation.report.tables import Table

_TABLE = Table(("label", "cycles"), [("a, b|c", "3,128"), ('"d"', "12")], frozenset({1}))


def test_csv_has_numbers_without_separators_and_text_as_it_is() -> None:
    assert list(csv.reader(io.StringIO(_TABLE.csv()))) == [
        ["label", "cycles"],
        ["a, b|c", "3128"],
        ['"d"', "12"],
    ]


def test_markdown_escapes_bars() -> None:
    assert "a, b\\|c | 3,128 |" in _TABLE.markdown()
