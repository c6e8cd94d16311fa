"""Commands in the code blocks of the documents are ones that exist, with flags that exist."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from waferstream.cli.app import context_of
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.flags.forms import FORMS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/*.md",
        "docs/tutorials/*.md",
        "examples/README.md",
    )
    for path in sorted(ROOT.glob(pattern))
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "bash", "console")
CELL = re.compile(r"`((?:python|waferstream) [^`]*)`")
START = re.compile(r"python (run\.py|-m|examples/)|waferstream \S|make \S")
PLACEHOLDER = re.compile(r"^[A-Z][A-Z_]*$|\.\.\.|^(program\.py)$")


def commands_of(path: Path) -> list[str]:
    """Return the lines of code blocks and the code in tables that start a program of ours."""
    text = path.read_text(encoding="utf-8")
    blocks = [block for language, block in BLOCK.findall(text) if language in SHELLS]
    lines = [line for block in blocks for line in _joined(block).splitlines()]
    if path.parent.name == "examples":
        lines += CELL.findall(text)
    return [line.partition("  #")[0].strip() for line in lines if START.match(line)]


def _joined(block: str) -> str:
    return re.sub(r"\\\n\s*", "", block)


COMMANDS = [(path, line) for path in DOCUMENTS for line in commands_of(path)]


def check_command_line(words: list[str]) -> None:
    """Parse a command line of ``waferstream``; SystemExit where it is wrong."""
    if words[0] in FORMS or (words[0].startswith("-") and words != ["--version"]):
        parse_arguments(words, ROOT)
    elif words != ["--version"]:
        context_of(words, ROOT)


def check_target(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


def test_site_is_built_where_its_hooks_can_be_imported() -> None:
    """mkdocs.yml names functions of `scripts`, which is not installed: the folder must be searched."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(BIN)/python -m mkdocs build" in makefile
    assert "$(BIN)/mkdocs" not in makefile


def check_files(words: list[str], document: Path) -> None:
    """Check that the files that a command reads exist, or are written by another one."""
    written = re.findall(r"--out (\S+)", document.read_text(encoding="utf-8"))
    for word in words:
        known = word in written or PLACEHOLDER.search(word)
        if word.endswith((".yaml", ".py")) and not known:
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize(("path", "line"), COMMANDS, ids=lambda value: str(value)[-60:])
def test_command_of_a_document_exists(path: Path, line: str) -> None:
    words = shlex.split(line)
    if any(PLACEHOLDER.search(word) for word in words):
        pytest.skip("a form, not a command")
    if words[0] == "make":
        check_target(words[1])
    elif words[1] == "-m":
        assert find_spec(words[2]) is not None
    elif words[0] == "waferstream":
        check_command_line(words[1:])
    else:
        check_files(words[1:], path)
        if words[1] == "run.py":
            check_command_line(words[2:])


def test_documents_have_commands() -> None:
    assert len(COMMANDS) > 20
