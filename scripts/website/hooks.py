"""Hooks of the documentation site (mkdocs.yml): further pages, links, equations."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs.yml names functions of this module

from scripts.reference_pages import pages  # noqa: E402
from scripts.website.sequence_diagram import sequence_svg  # noqa: E402

SOURCES = {
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "examples.md": "examples/README.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site that are documents from outside of docs."""

GLOSSARY = "glossary.md"
"""The page of the chapter of CONTRIBUTING.md."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[\w-]+)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of docs, and those that follow from the code."""
    for name, source in SOURCES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    contributing = (ROOT / SOURCES["contributing.md"]).read_text(encoding="utf-8")
    glossary = contributing.partition("## Glossary")[2].partition("\n## ")[0]
    files.append(File.generated(config, GLOSSARY, content=f"# Glossary{glossary}"))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links of a document lead to pages of the site."""
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(source)

    def rewritten(link: re.Match[str]) -> str:
        image, text, path, anchor = link.groups(default="")
        target = page_of(posixpath.normpath(posixpath.join(folder, path)))
        if target is None:
            return f"{text} (`{path}`)" if text != path else f"`{path}`"
        place = posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")
        return f"{image}[{text}]({place}{anchor})"

    return _LINK.sub(rewritten, markdown)


def page_of(path: str) -> str | None:
    """Return the file of the site for a file of the repository; None where there is none."""
    own = {source: name for name, source in SOURCES.items()}
    if path in own:
        return own[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def diagram(source: str, *_: Any, **__: Any) -> str:
    """Return the drawing of a sequence diagram."""
    return f'<p class="diagram">{sequence_svg(source)}</p>'


def equation(source: str, *_: Any, **__: Any) -> str:
    """Return the MathML of a block of LaTeX, which browsers draw by themselves."""
    return f"<p>{convert(source.strip(), display='block')}</p>"
