"""A page of HTML, parsed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from waferstream.reports.page import Page, render

_VOID = ("meta", "img", "br", "link")


class Parsed(HTMLParser):
    """Tags, text and table cells of a page; refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @classmethod
    def of(cls, page: Page) -> Parsed:
        """Return a rendered page."""
        return cls(render(page))

    @property
    def sections(self) -> list[str | None]:
        """The names of the sections, in order."""
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]

    def assert_loads_nothing(self) -> None:
        """Check that no script, no style sheet and no file is named; pictures are embedded."""
        assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in self.tags}
        for _, attributes in self.tags:
            for name in ("src", "href", "data", "srcset"):
                value = attributes.get(name) or "#"
                assert value.startswith(("#", "data:image/png;base64,")), value
        style = re.sub(r"data:image/png;base64,[\w+/=]+", "", self.source)
        assert "url(" not in style
        assert "@import" not in style

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "td":
            self.cells.append(data)
        if "style" not in self._open:
            self.text += data
