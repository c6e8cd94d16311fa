"""Groups of commands are found, explained, and print tables."""

from __future__ import annotations

import shlex

import pytest

from waferstream.cli.app import COMMANDS, context_of
from waferstream.cli.frame.commands import DECLARED, NAME, Group, find
from waferstream.cli.frame.output import table, tell
from waferstream.cli.main import main

GROUPS = [name for name, entry in COMMANDS.items() if isinstance(entry.load(name), Group)]


@pytest.mark.parametrize("group", GROUPS)
def test_group_of_commands_explains_itself(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([group, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"waferstream {group}" in out
    assert COMMANDS[group].help.split()[-1] in out.split("Options")[0]


@pytest.mark.parametrize("words", [["config"], ["model", "lits"], ["checkpoint", "info", "--x"]])
def test_wrong_command_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_table_aligns_its_columns() -> None:
    lines = table([{"a": 1, "name": "x"}, {"a": 12345, "name": [1, 2]}]).splitlines()
    assert lines == ["a       name", "1       x", "12,345  1, 2"]
    assert table([]) == "(none)"


def test_text_of_others_gives_a_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    """A label may clear the screen, write a title, or turn the line around."""
    hostile = "\x1b[2J\x1b]0;title\x07\n\u202eä"
    (_, line) = table([{"labels": hostile}]).splitlines()
    assert line == r"\x1b[2J\x1b]0;title\x07\n\u202eä"
    tell(f"reason: {hostile}")
    assert capsys.readouterr().out == "reason: \\x1b[2J\\x1b]0;title\\x07\n\\u202eä\n"


@pytest.mark.parametrize("name", list(DECLARED))
def test_example_of_a_command_is_right(name: str) -> None:
    """And is of the command itself."""
    example = find(name).epilog.removeprefix(f"Example: {NAME} ")
    context = context_of(shlex.split(example))
    assert f"{context.command_path} ".startswith(f"{NAME} {name} ")
