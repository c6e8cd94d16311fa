"""Pages of error codes: what each error says, where it is raised, and the tests that show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from waferstream.core.error_status import OF_CLASS, Status, status_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "errors"

_INDEX = """\
# Errors

Every error has a stable code, printed in brackets after its text. Programs and tests compare codes;
texts may change. With `--json`, standard output is `{"error": ...}` with all fields of the error.

A server answers an error with the status of its row, in HTTP and in gRPC.

| code | kind | status |
|---|---|---|
"""
_FIELDS = ("value", "rule", "remedy")
_QUOTED = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"')
"""Words with hyphens in quotes, as all codes are."""
_DERIVED = re.compile(r"^class (\w+)\((\w+)", re.MULTILINE)


@dataclass(frozen=True)
class RaisedError:
    """A place in the code that raises an error, with what is fixed of its text."""

    kind: str
    place: str
    texts: Mapping[str, str]
    """What failed (``what``) and further fields, with the expressions for values in braces."""


@dataclass
class ErrorCode:
    """All that code and tests say about a code."""

    raised: list[RaisedError] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    statuses: set[Status] = field(default_factory=set)
    tests: list[str] = field(default_factory=list)

    def page(self, code: str) -> str:
        """Return the page of the code as Markdown."""
        parts = [f"# {code}", f"Raised as {_codes(sorted(self.kinds))}."]
        if self.statuses:
            parts.append(f"A server answers {self.answers()}.")
        parts += [_paragraph(each) for each in self.raised]
        if self.tests:
            parts.append("Shown by " + ", ".join(f"`{test}`" for test in self.tests) + ".")
        return "\n\n".join(parts) + "\n"

    def answers(self) -> str:
        """Return the statuses in words."""
        return " or ".join(f"{each.http} `{each.grpc}`" for each in sorted(self.statuses))


def error_pages() -> dict[str, str]:
    """Return the pages of all codes, and their index, by the names of their files."""
    codes = dict(sorted(error_codes().items()))
    rows = (
        f"| [{code}]({code}.md) | {_codes(sorted(each.kinds))} | {each.answers()} |"
        for code, each in codes.items()
    )
    pages = {f"{FOLDER}/{code}.md": each.page(code) for code, each in codes.items()}
    return {f"{FOLDER}/index.md": _INDEX + "\n".join(rows) + "\n", **pages}


def error_codes() -> dict[str, ErrorCode]:
    """Return every code that the packages state or a test expects."""
    codes: dict[str, ErrorCode] = {}
    stated: set[str] = set()
    classes = {each.__name__: each for each in OF_CLASS}
    for package in sorted(path.parent for path in ROOT.glob("*/__init__.py")):
        if package.name == "tests":
            continue
        for path in sorted(package.rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            stated.update(_QUOTED.findall(source))
            for name, base in _DERIVED.findall(source):
                if base in classes:
                    classes.setdefault(name, classes[base])
            for code, raised in _raised_in(source, str(path.relative_to(ROOT))):
                codes.setdefault(code, ErrorCode()).raised.append(raised)
                codes[code].kinds.add(raised.kind)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if not stated.isdisjoint(_QUOTED.findall(source)):
            _add_tests(source, str(path.relative_to(ROOT)), codes, stated)
    for code, each in codes.items():
        known = each.kinds & classes.keys()
        each.statuses = {status_of(classes[kind], code) for kind in known}
    return codes


def _raised_in(source: str, place: str) -> Iterator[tuple[str, RaisedError]]:
    """Yield the errors that a file constructs with a literal code."""
    nodes = ast.walk(ast.parse(source)) if "code=" in source else ()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        given = {word.arg: word.value for word in node.keywords if word.arg}
        code, kind = _literal(given.get("code")), ast.unparse(node.func).rpartition(".")[2]
        if code is None or not kind[0].isupper():
            continue
        what = {"what": node.args[0]} if node.args else {}
        fields = {**what, **{name: given[name] for name in _FIELDS if name in given}}
        texts = {name: text for name, value in fields.items() if (text := _text(value))}
        yield code, RaisedError(kind, place, texts)


def _literal(value: ast.expr | None) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _text(value: ast.expr) -> str | None:
    """Return a literal or formatted text, with expressions in braces; None for anything else."""
    if not isinstance(value, ast.JoinedStr):
        return _literal(value)
    parts = (
        str(each.value)
        if isinstance(each, ast.Constant)
        else f"{{{ast.unparse(each.value)}}}"  # without its format
        for each in value.values
        if isinstance(each, ast.Constant | ast.FormattedValue)
    )
    return "".join(parts)


def _add_tests(source: str, place: str, codes: dict[str, ErrorCode], stated: Set[str]) -> None:
    """Add the tests of a file to the codes that they name.

    A code that is put together where it is raised is one that a test expects of an error.
    """
    for test in ast.walk(ast.parse(source)):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        nodes = list(ast.walk(test))
        for kind, code in filter(None, map(_expected, nodes)):
            if code in stated:
                codes.setdefault(code, ErrorCode()).kinds.add(kind)
        named = {node.value for node in nodes if isinstance(node, ast.Constant)}
        for code in codes.keys() & named:
            codes[code].tests.append(f"{place}::{test.name}")


def _expected(node: ast.AST) -> tuple[str, str] | None:
    """Return kind and code of the error that a test expects in a call of ``raises``."""
    match node:
        case ast.Call(ast.Name("raises"), [ast.Name(kind), ast.Constant(str() as code)]):
            return kind, code
    return None


def _paragraph(raised: RaisedError) -> str:
    """Return the text of an error at one place of the code."""
    lines = [f"    {raised.texts.get('what', '(depends on the case)')}"]
    lines += [f"      {name}: {raised.texts[name]}" for name in _FIELDS if name in raised.texts]
    return f"In `{raised.place}`:\n\n" + "\n".join(lines)


def _codes(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
