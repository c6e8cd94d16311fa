"""A report as one HTML page that loads nothing and runs no script.

It is readable on a phone and on a desk, in light and in dark, and on paper. A page has sections, a
section has blocks: tables, drawings, named values, sentences, listings.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header; numbers are aligned right, the first column left."""

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[str] = ()
    """Names of further columns that are aligned left."""


@dataclass(frozen=True)
class Figures:
    """Drawings side by side, one below the other where the page is narrow."""

    kind: ClassVar[str] = "figures"
    drawings: Sequence[tuple[str, Markup]]
    """Title and SVG of each."""


@dataclass(frozen=True)
class Picture:
    """A PNG, embedded; ``description`` says what it shows."""

    kind: ClassVar[str] = "picture"
    png: bytes
    description: str

    @property
    def source(self) -> str:
        """The picture as an address."""
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Facts:
    """Values by name."""

    kind: ClassVar[str] = "facts"
    values: Mapping[str, str]


@dataclass(frozen=True)
class Sentence:
    """A paragraph; a note explains what is above."""

    kind: ClassVar[str] = "sentence"
    text: str
    is_note: bool = True


@dataclass(frozen=True)
class Verdict:
    """A sentence that says whether a promise was kept, with its evidence."""

    kind: ClassVar[str] = "verdict"
    is_kept: bool
    text: str
    evidence: Sequence[str]


@dataclass(frozen=True)
class Listing:
    """Lines as they are, under a title."""

    kind: ClassVar[str] = "listing"
    title: str
    text: str


Block = Table | Figures | Picture | Facts | Sentence | Verdict | Listing


@dataclass(frozen=True)
class Section:
    """Part of a page under a title; ``name`` is its address on the page."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A report; ``tiles`` are the few numbers that a reader looks for first: name, value, unit."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    tiles: Sequence[tuple[str, str, str]] = ()


def render(page: Page, template: str = _TEMPLATE, **given: Any) -> str:
    """Return a page as HTML; templates that extend the usual one take what is ``given``."""
    return _template(template).render(page=page, **given)


@cache
def _template(name: str) -> Template:
    # commands that draw no page import this module for its blocks
    import jinja2  # noqa: PLC0415

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("waferstream.reports", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
