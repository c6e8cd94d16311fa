"""Faults of a built site are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.website.check import faults


def write(site: Path, **pages: str) -> None:
    for name, text in pages.items():
        (site / f"{name}.html").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "link",
    [
        "b.html", "b.html#here", "#top", "picture.png", "b.html?q=1#here", ".",
        "https://example.org/", "mailto:a@example.org",
    ],
)  # fmt: skip
def test_link_that_leads_somewhere_is_no_fault(tmp_path: Path, link: str) -> None:
    write(tmp_path, index=f'<p id="top"><a href="{link}">x</a>', b='<h2 id="here">x</h2>')
    (tmp_path / "picture.png").write_bytes(b"")
    assert list(faults(tmp_path)) == []


@pytest.mark.parametrize("link", ["c.html", "b.html#there", "#bottom", "none.png"])
def test_link_that_leads_nowhere_is_named(tmp_path: Path, link: str) -> None:
    write(tmp_path, index=f'<a href="{link}">x</a><img src="{link}">', b='<h2 id="here">x</h2>')
    assert list(faults(tmp_path)) == [f"index.html: broken link {link}"] * 2
