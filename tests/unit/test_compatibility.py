"""docs/compatibility.md lists every feature once; tests/compatibility.yaml names the tests of its rows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import cstorch
from waferstream_compat import older_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
TESTS: dict[int | str, list[str]] = yaml.safe_load(
    (ROOT / "tests" / "compatibility.yaml").read_text(encoding="utf-8")
)
STATES = ("works", "untested", "differs", "not here")
NUM_FEATURES = 118

NAME = re.compile(r"`([\w.]+)`")
NAMES = re.compile(r"^\| `(cstorch[\w.]*)` \|(.*)\|(.*)\|$", re.MULTILINE)


@cache
def _functions_of(path: str) -> frozenset[str]:
    """Return the names of the functions in a file; none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _rows() -> list[list[str]]:
    """Return the cells of all rows with a state: ..., state, explanation."""
    lines = (line for line in PAGE.splitlines() if line.startswith("| "))
    rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return [row for row in rows if len(row) > 2 and row[-2] in STATES]


ROWS = _rows()


def _key(row: list[str]) -> int | str:
    """Return the key of a row's tests: its number, or its name where it has none."""
    return int(row[0]) if row[0].isdecimal() else row[0]


def test_page_has_every_feature_once_in_order() -> None:
    numbers = [int(row[0]) for row in ROWS if row[0].isdecimal()]
    assert numbers == list(range(1, NUM_FEATURES + 1))


def test_page_has_the_number_of_features_in_each_state() -> None:
    counts = Counter(row[-2] for row in ROWS if row[0].isdecimal())
    stated = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    assert f"Of the {NUM_FEATURES} rows: {stated}." in PAGE


def test_every_row_of_the_page_proves_or_explains_its_state() -> None:
    for name, *_, state, explanation in ROWS:
        assert explanation or state == "works", name
    assert [row[0] for row in ROWS if row[-2] == "works" and _key(row) not in TESTS] == []


def test_tests_are_those_of_rows_of_the_page() -> None:
    assert TESTS.keys() <= {_key(row) for row in ROWS}


def test_every_named_test_exists() -> None:
    for test in sorted({test for tests in TESTS.values() for test in tests}):
        path, _, name = test.partition("::")
        assert name.startswith("test_"), test
        assert name in _functions_of(path), test


def _place(path: str) -> Any:
    """Return the module or class of cstorch with this path; None if there is none."""
    place: Any = cstorch
    for name in path.split(".")[1:]:
        place = getattr(place, name, None)
    return place


@pytest.mark.parametrize(("path", "here", "missing"), NAMES.findall(PAGE))
def test_names_of_the_front_end_are_here_or_missing(path: str, here: str, missing: str) -> None:
    listed = dict.fromkeys(NAME.findall(here), True)
    listed |= dict.fromkeys(NAME.findall(missing), False)
    assert listed
    assert {name: hasattr(_place(path), name) for name in listed} == listed


def test_names_of_earlier_releases_are_listed() -> None:
    chapter = PAGE[PAGE.index("## Names of earlier releases") :]
    for name in (*older_names.PACKAGES, *older_names.ALIASES, *older_names.REPLACED):
        short = name.removeprefix("cerebras.pytorch.").removeprefix("cerebras.")
        assert f"`{name}`" in chapter or f"`{short}`" in chapter, name
