"""Commands beside runs: groups of sub-commands on configurations, models, data, checkpoints.

The names of groups, commands and flags are those of the vendor's entry tool (Model Zoo 2.10,
``cli/main.py``).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from appliance.user_code import importing_from
from waferstream.cli.tools.command import Command

TOOLS: Mapping[str, str] = {
    "config": "waferstream.cli.tools.config",
    "model": "waferstream.cli.tools.model",
    "data_processor": "waferstream.cli.tools.data",
    "checkpoint": "waferstream.cli.tools.checkpoint.commands",
    "job": "waferstream.cli.tools.job",
    "cluster": "waferstream.cli.tools.cluster",
    "certificates": "waferstream.cli.tools.certificates",
}
"""Group of commands to the module that holds them, in its variable COMMANDS.

A module is imported when its group is called: some of them import torch, which takes seconds.
"""


def run_tool(group: str, words: Sequence[str]) -> int:
    """Run a command of a group and return its exit code.

    Raises:
        SystemExit: code 2 for a wrong command line, code 0 after ``--help``.
        WaferStreamError: The command failed.
    """
    given = tool_parser(group).parse_args(words)
    params = getattr(given, "params", None) or getattr(given, "config", None) or Path()
    with importing_from((params.parent, Path())):
        code: int = given.run(given)
    return code


def tool_commands(group: str) -> Sequence[Command]:
    """Return the commands of a group."""
    commands: Sequence[Command] = import_module(TOOLS[group]).COMMANDS
    return commands


def tool_parser(group: str) -> argparse.ArgumentParser:
    """Build the argparse parser of a group."""
    parser = argparse.ArgumentParser(prog=f"waferstream {group}", allow_abbrev=False)
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in tool_commands(group):
        own = choices.add_parser(command.name, help=command.help, allow_abbrev=False)
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser
