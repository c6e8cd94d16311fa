"""Sequence diagrams of the documents become drawings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.website.sequence_diagram import sequence_svg
from tests.support.reports.html import Parsed

DOCS = Path(__file__).resolve().parents[4] / "docs"
BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
TWO = "sequenceDiagram\nparticipant A as first\nparticipant B\n"


def test_sequence_svg_draws_every_message_in_order() -> None:
    drawn = sequence_svg(f"{TWO}A->>B: x < y\nloop twice\nB-->>A: back\nB->>B: own\nend")
    parsed = Parsed(drawn)
    arrows = [values for tag, values in parsed.tags if values.get("class") == "message"]
    assert len(arrows) == 3
    assert ["stroke-dasharray" in values for values in arrows] == [False, True, False]
    assert parsed.text.index("x < y") < parsed.text.index("back") < parsed.text.index("own")
    assert "twice" in parsed.text


@pytest.mark.parametrize("line", ["A->>C: x", "nonsense", "end", "A -> B"])
def test_sequence_svg_refuses_what_it_cannot_draw(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        sequence_svg(TWO + line)


def test_every_diagram_of_the_documents_is_drawn() -> None:
    blocks = [block for page in DOCS.glob("*.md") for block in BLOCK.findall(page.read_text())]
    assert blocks
    for block in blocks:
        assert sequence_svg(block).count("message") == block.count(">>")
