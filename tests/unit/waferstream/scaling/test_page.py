"""The page of the scaling experiment holds every number and stands alone."""

from base64 import b64decode, b64encode
from dataclasses import replace
from html.parser import HTMLParser

from tests.support.summaries import DIGEST, summary, with_digest
from waferstream.reports.scaling import Scaling
from waferstream.reports.summary import ModelSummary
from waferstream.scaling.page import page

VOID = ("meta", "img", "br")


class Parsed(HTMLParser):
    """A page's tags, text and table cells; refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "td":
            self.cells.append(data)
        if "style" not in self._open:
            self.text += data


SCALING = Scaling.of([summary(1), summary(4, reduce_ps=2_000_000)])
PICTURE = b"\x89PNG pixels"


def test_the_page_is_well_formed_and_holds_every_number() -> None:
    """Two rows of cells, the host with its special characters, the commit."""
    parsed = Parsed(page(SCALING, "c0ffee", PICTURE))
    assert parsed.cells[0] == "1"
    assert parsed.cells[8:12] == ["4", "4,000,000", "50.0%", "4.00 us"]
    assert "Xeon <2>, 2 cores, 8.0 GiB" in parsed.text
    assert "c0ffee" in parsed.text


def test_the_page_stands_alone() -> None:
    """No script, no link to anything; the picture is inside."""
    parsed = Parsed(page(SCALING, None, PICTURE))
    names = [tag for tag, _ in parsed.tags]
    assert "script" not in names
    assert "link" not in names
    sources = [attributes["src"] for _, attributes in parsed.tags if "src" in attributes]
    (source,) = sources
    assert source is not None
    assert b64decode(source.removeprefix("data:image/png;base64,")) == PICTURE
    text = page(SCALING, None, PICTURE).replace(b64encode(PICTURE).decode(), "")
    assert "http" not in text
    assert "url(" not in text


def test_bitwise_reproducible_shows_the_digest_once_in_full() -> None:
    """Yes, and the digest that all runs share."""
    parsed = Parsed(page(SCALING, None, PICTURE))
    assert "One answer: yes" in parsed.text
    assert parsed.text.count(DIGEST) == 1


def test_different_answers_show_every_digest() -> None:
    """No, and which run ended with what."""
    scaling = Scaling.of([summary(1), with_digest(summary(2), "cd" * 32)])
    parsed = Parsed(page(scaling, None, PICTURE))
    assert "One answer: NO" in parsed.text
    assert f"1: {DIGEST}" in parsed.text
    assert f"2: {'cd' * 32}" in parsed.text


def test_names_cannot_break_the_page() -> None:
    """A model may be called what it likes."""
    run = replace(summary(1), model=ModelSummary("<script>$x & </title>", 12))
    parsed = Parsed(page(Scaling.of([run]), None, PICTURE))
    assert "<script>$x & </title>, 12 parameters" in parsed.text
