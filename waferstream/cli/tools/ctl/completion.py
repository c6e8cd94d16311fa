"""What a shell adds to a word that was begun: verbs, flags, values, and names of jobs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from contextlib import suppress

from waferstream.cli.tools.command import TOOLS, Command, argument, tell, tool_parser
from waferstream.cli.tools.ctl.connection import management
from waferstream.core.errors import WaferStreamError
from waferstream.management.model.operations import ListWorkflows

_SCRIPT = """\
_waferstream() {
    local IFS=$'\\n'
    COMPREPLY=($(waferstream ctl completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _waferstream waferstream"""

_OF_JOBS = ("name", "names", "words")
"""Positional arguments of verbs that take jobs."""


def _completion(given: argparse.Namespace) -> int:
    """Print the script, or what may follow the words that bash asks about."""
    if given.words is None:
        return tell(given, _SCRIPT, script=_SCRIPT)
    *before, begun = given.words or [""]
    found = [each for each in candidates(before) if each.startswith(begun)]
    return tell(given, "\n".join(found), words=found)


def candidates(before: Sequence[str]) -> list[str]:
    """Return what may follow words of a command line."""
    if not before:
        return list(TOOLS)
    if before[0] not in TOOLS:
        return []
    parser = tool_parser(before[0])
    for word in before[1:]:
        parser = _verbs(parser).get(word, parser)
    if verbs := _verbs(parser):
        return list(verbs)
    asked = [each for each in parser._actions if before[-1] in each.option_strings]
    if asked and asked[0].choices:
        return [str(each) for each in asked[0].choices]
    flags = [flag for each in parser._actions for flag in each.option_strings]
    places = [each for each in parser._actions if not each.option_strings]
    values = [str(value) for each in places for value in each.choices or ()]
    is_of_jobs = before[0] == "ctl" and before[1] not in ("node", "session", "user")
    takes_jobs = is_of_jobs and any(each.dest in _OF_JOBS for each in places)
    return [*flags, *values, *(_jobs() if takes_jobs else ())]


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _jobs() -> Iterable[str]:
    """Return the names of unfinished workflows and of their jobs; none where nobody answers."""
    names: list[str] = []
    given = argparse.Namespace(mgmt_address=None, credentials_path=None)
    with suppress(OSError, WaferStreamError), management(given) as client:
        for workflow in client.do(ListWorkflows()):
            names += [workflow.name, *(job.name for job in workflow.jobs)]
    return names


COMMANDS = (
    Command(
        "completion",
        'print what bash needs to complete words: eval "$(waferstream ctl completion)"',
        _completion,
        (argument("--words", nargs=argparse.REMAINDER, help="complete the last of these words"),),
    ),
)
