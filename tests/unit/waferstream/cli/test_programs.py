"""The command line of programs: ``waferstream check`` and ``waferstream exec``."""

from __future__ import annotations

from pathlib import Path

import pytest

from waferstream.cli.app import context_of
from waferstream.cli.programs import STEPS


def test_flags_come_before_the_program_and_its_own_after() -> None:
    given = context_of(["check", "--num_csx=4", "--json", "p.py", "--steps", "9"]).params
    assert (given["target"], given["words"], given["steps"]) == (
        Path("p.py"),
        ["--steps", "9"],
        STEPS,
    )
    assert (given["num_csx"], given["json"]) == (4, True)


@pytest.mark.parametrize(
    ("words", "program", "module"),
    [
        ("--num-csx 2 p.py --trace x -m y", ["p.py", "--trace", "x", "-m", "y"], None),
        ("--num_csx=2 -m package.train --num_csx 3", ["--num_csx", "3"], "package.train"),
        ("-m train", [], "train"),
        ("--trace t -- p.py --help", ["p.py", "--help"], None),
    ],
)
def test_words_of_a_program_are_its_own(words: str, program: list[str], module: str | None) -> None:
    given = context_of(["exec", *words.split()]).params
    assert (given["program"] or [], given["module"]) == (program, module)
    assert given["num_csx"] in (2, None)


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "--steps=0", "p.py"],
        ["check", "--num_csx=0", "p.py"],
        ["exec", "--num_csx=0", "p.py"],
        ["exec", "--num_cs=1", "p.py"],
    ],
)
def test_wrong_command_line_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        context_of(words)
    assert caught.value.code == 2
