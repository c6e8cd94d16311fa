"""Groups of commands are found, explained, and print tables."""

from __future__ import annotations

import pytest

from waferstream.cli.main import main
from waferstream.cli.tools.command import TOOLS, table


@pytest.mark.parametrize("group", TOOLS)
def test_group_of_commands_explains_itself(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([group, "--help"])
    assert ended.value.code == 0
    assert f"waferstream {group}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["config"], ["model", "lits"], ["checkpoint", "info", "--x"]])
def test_wrong_command_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_table_aligns_its_columns() -> None:
    lines = table([{"a": 1, "name": "x"}, {"a": 12345, "name": [1, 2]}]).splitlines()
    assert lines == ["a       name", "1       x", "12,345  1, 2"]
    assert table([]) == "(none)"
