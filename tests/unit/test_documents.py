"""Paths, modules and commands that the documents name exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md",
        "*/README.md",
        "validation/data/README.md",
        "docs/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and not path.parent.name.startswith(".")
)
PATH = re.compile(rf"`((?:{'|'.join([*PACKAGES, 'docs'])})/[\w./*]+)`")
LINK = re.compile(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]*)?\)")
COMMAND = re.compile(r"python -m ([a-z_.]+)")


def _exists(name: str) -> bool:
    pattern = name.rstrip("/")
    return any(ROOT.glob(pattern)) or any(ROOT.glob(f"{pattern}.py"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_paths_of_a_document_exist(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    missing = [name for name in PATH.findall(text) if not _exists(name)]
    missing += [link for link in LINK.findall(text) if not (ROOT / document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_modules_of_a_document_can_be_run(document: Path) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for module in sorted(set(COMMAND.findall(text))):
        assert find_spec(module) is not None, module
