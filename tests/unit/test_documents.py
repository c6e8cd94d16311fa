"""Paths, modules and commands that documents, settings and code name exist."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from waferstream.config.schema.keys import all_keys

ROOT = Path(__file__).parents[2]
GENERATED = ("configuration.md", "commands.md", "ops.md", "errors/index.md")
"""Pages that are made when the site is built, to which other pages of docs may lead."""
FOR_USERS = {"What it is", "Start", "Tutorials", "Gallery", "How to"}
"""Parts of the site for those who use the program."""
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md",
        "*/README.md",
        "benchmarks/notebook.md",
        "validation/data/README.md",
        "docs/*.md",
        "docs/decisions/*.md",
        "docs/tutorials/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and not path.parent.name.startswith(".")
)
PATH = re.compile(rf"`((?:{'|'.join([*PACKAGES, 'docs'])})/[\w./*]+)`")
LINK = re.compile(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]*)?\)")
NAMED = re.compile(r"`(?:\w+\.)*(\w+)`,? \(?`([\w/]+\.py)`")
"""What a document places in a file."""
COMMAND = re.compile(r"python -m ([a-z_.]+)")
SOURCES = sorted(
    path
    for pattern in (
        "*.py",
        "*.yaml",
        "Makefile",
        "pyproject.toml",
        "deploy/**/*",
        *(f"{folder}/**/*.py" for folder in [*PACKAGES, "examples"]),
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)
FILE = re.compile(rf"(?<![\w./-])((?:{'|'.join([*PACKAGES, 'docs'])})/[\w/]+\.(?:py|md|yaml))\b")
IN_QUOTES = re.compile(rf"[\"']((?:{'|'.join(PACKAGES)})\.[a-z_]\w*(?:\.\w+)*)[\"':]")
NAMES = ("name", "asname", "id", "attr")  # fields of syntax that hold a name


def _exists(name: str) -> bool:
    pattern = name.rstrip("/")
    return any(ROOT.glob(pattern)) or any(ROOT.glob(f"{pattern}.py"))


def test_paths_of_documents_exist() -> None:
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        missing = [name for name in PATH.findall(text) if not _exists(name)]
        known = GENERATED if document.parts[0] == "docs" else ()
        links = (link for link in LINK.findall(text) if link not in known)
        missing += [link for link in links if not (ROOT / document.parent / link).exists()]
        assert missing == [], document


def test_files_have_what_documents_place_there() -> None:
    for document in DOCUMENTS:
        placed = NAMED.findall((ROOT / document).read_text(encoding="utf-8"))
        known = [(name, ROOT / path) for name, path in placed if (ROOT / path).exists()]
        assert [
            f"{name} in {path}"
            for name, path in known
            if not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))
        ] == [], document


def test_modules_of_documents_can_be_run() -> None:
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        for module in sorted(set(COMMAND.findall(text))):
            assert find_spec(module) is not None, f"{module} in {document}"


def _prose(page: str) -> int:
    """Return the words of a page of docs that are in no table."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    return sum(len(line.split()) for line in lines if not line.startswith("|"))


def _pages(entry: Any) -> list[str]:
    """Return the pages of an entry of the site's navigation that are files of docs."""
    if isinstance(entry, str):
        return [entry] if (ROOT / "docs" / entry).exists() else []
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for each in inner for page in _pages(each)]


def test_pages_for_users_are_a_third_of_the_prose() -> None:
    """Who uses the program is not to look for it between how it works and how far it is right."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1])
    of_users = [page for entry in nav if set(entry) <= FOR_USERS for page in _pages(entry)]
    every = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert len(of_users) > 15
    assert sum(map(_prose, of_users)) * 3 >= sum(map(_prose, every))


def test_files_that_the_code_names_exist() -> None:
    missing = [
        f"{source.relative_to(ROOT)}: {name}"
        for source in SOURCES
        for name in FILE.findall(source.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert missing == []


def _module_of(name: str) -> tuple[Path, str]:
    """Return the file of the longest module that ``name`` begins with, and the next word or ""."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        place = ROOT.joinpath(*words[:length])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists():
                return path, ".".join(words[length : length + 1])
    raise ValueError(name)


def _is_named(name: str) -> bool:
    """Whether ``name`` is a module, or something that the code of its module names."""
    path, word = _module_of(name)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return word in {"", *(getattr(node, field, "") for node in nodes for field in NAMES)}


def test_modules_that_strings_of_the_code_name_exist() -> None:
    """Modules to import at need, to load beforehand, to patch in a test."""
    settings = [key.path.removeprefix("machine.") for key in all_keys()]
    names = {
        name: source.relative_to(ROOT)
        for source in SOURCES
        for name in IN_QUOTES.findall(source.read_text(encoding="utf-8"))
        if not any(key.startswith(name) for key in settings)
        and ".v1." not in name  # a service of gRPC
        and not name.endswith((".ipynb", ".py"))  # a file
    }
    assert len(names) > 50
    assert [f"{source}: {name}" for name, source in names.items() if not _is_named(name)] == []
