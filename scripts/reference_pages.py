"""Write what follows from the code: ``python -m scripts.reference_pages [--pages FOLDER]``.

docs/schema holds the JSON schemas of params.yaml and cluster.yaml. The pages of keys, commands, ops
and error codes are made when the site is built (scripts.website.hooks), or written to a folder.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from modelzoo import KEYS
from scripts.configuration_tasks import TASKS, task_of
from scripts.error_pages import error_pages
from scripts.op_table import page as ops_page
from waferstream.cli.accounts import COMMANDS as OF_ACCOUNTS
from waferstream.cli.accounts import accounts_parser
from waferstream.cli.check import check_parser
from waferstream.cli.execute import exec_parser
from waferstream.cli.flags.flag import Flag
from waferstream.cli.flags.forms import FORMS
from waferstream.cli.serving import COMMANDS as SERVING
from waferstream.cli.serving import serving_parser
from waferstream.cli.tools.command import TOOLS, Argument, tool_commands
from waferstream.config.schema.files import FileKind, schema_of
from waferstream.config.schema.keys import ConfigKey, keys_of
from waferstream.workload.data import DATA_PROCESSORS
from waferstream.workload.known_keys import written
from waferstream.workload.models import MODELS

DOCS = Path(__file__).resolve().parents[1] / "docs"

_CONFIGURATION = """\
# Configuration

All keys of params.yaml and cluster.yaml, with type, default and unit, and the source of each number
of the emulated machine. The page is made from the typed configuration when the site is built.

- `waferstream config explain KEY [FILE]` prints the same for one key, with its value in a file.
- `waferstream config validate FILE` checks a params file.
- `waferstream config schema params` and `waferstream config schema cluster` print JSON schemas.
  Editors that read `# yaml-language-server: $schema=FILE` in the first line of a YAML file complete
  and check its keys ([params.json](schema/params.json), [cluster.json](schema/cluster.json)).
- The sources name papers, talks and rows of the reference tables as in [fidelity.md](fidelity.md).

A key without default is required. Entries of a list have the path of the list.
"""

_COMMANDS = """\
# Commands

All commands and their flags, made from the parsers of the command line when the site is built.
`run.py` is `waferstream` from a checkout. A flag overrides the same key of the params file
([configuration.md](configuration.md)).
"""


def configuration_page() -> str:
    """Return the reference of all keys as Markdown, by task, with an example of each."""
    kinds: tuple[FileKind, ...] = get_args(FileKind)
    parts = [_CONFIGURATION]
    for kind in kinds:
        parts.append(f"## {kind}.yaml\n")
        sections = _sections(keys_of(kind)).values()
        for task in (task for task in TASKS if task.file == kind):
            parts += [f"### {task.title}\n", f"```yaml\n{task.example}```\n"]
            for keys in sections:
                if task_of(kind, keys[0].place) is task:
                    parts += _section(keys)
    return "\n".join(parts)


def _sections(keys: Sequence[ConfigKey]) -> dict[str, list[ConfigKey]]:
    found: dict[str, list[ConfigKey]] = {}
    for key in keys:
        found.setdefault(key.section, []).append(key)
    return found


def _section(keys: Sequence[ConfigKey]) -> Iterator[str]:
    """Yield the lines of a section, which may be in several places of a file."""
    first = keys[0]
    places = list(dict.fromkeys(key.place for key in keys if key.place))
    yield f"#### {first.section}\n"
    if first.about:
        yield f"{_markdown(first.about)}\n"
    if places:
        yield f"At {', '.join(f'`{place}`' for place in places)}.\n"
    yield "| key | type | default | unit | meaning, source |"
    yield "|---|---|---|---|---|"
    own = {key.name: key for key in reversed(keys)}
    for key in reversed(own.values()):
        source = f"*{key.status}:* {key.source}" if key.status else key.source
        text = " ".join(filter(None, (key.meaning, source)))
        default = f"`{key.default}`" if key.default else ""
        cells = (f"`{key.name}`", key.type, default, key.unit, text)
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _markdown(text: str) -> str:
    """Return a docstring as Markdown: code between single backticks, no HTML, no links."""
    parts = re.sub(r"``([^`]*)``", r"`\1`", text).split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("[", "\\[") for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "\\|")


def commands_page() -> str:
    """Return the reference of all commands as Markdown."""
    parts = [_COMMANDS]
    for form in FORMS.values():
        parts += [f"\n## waferstream {form.name}\n", form.help]
        parts += [f"\n`{form.example}`"] if form.example else []
        for title, flags in form.groups.items():
            if form.name == "run" or title == "what to run":
                parts += [f"\n**{title}**\n", *_flags(flags)]
        if form.name != "run":
            parts.append("\nThe other flags are those of `waferstream run`, as far as they apply.")
    parts += ["\n## waferstream exec\n", *_parser(exec_parser())]
    parts += ["\n## waferstream check\n", *_parser(check_parser())]
    for name in SERVING:
        parts += [f"\n## waferstream {name}\n", *_parser(serving_parser(name))]
    for name in OF_ACCOUNTS:
        parts += [f"\n## waferstream serve {name}\n", *_parser(accounts_parser(name))]
    for group in TOOLS:
        parts.append(f"\n## waferstream {group}")
        for command in tool_commands(group):
            words = f"waferstream {group} {command.name}".rstrip()
            parts += [f"\n### {words}\n", f"{_sentence(command.help)}\n"]
            parts += _arguments(command.arguments)
    return "\n".join(parts) + "\n"


def _flags(flags: Sequence[Flag]) -> Iterator[str]:
    """Yield the table of flags."""
    yield "| argument | values | meaning |"
    yield "|---|---|---|"
    for flag in flags:
        name = ", ".join(f"`{word}`" for word in flag.spelling)
        values = ", ".join(map(str, get_args(flag.kind))) or getattr(flag.kind, "__name__", "")
        values = {"bool": "", "str": "text", "int": "integer", "float": "number"}.get(
            values, values
        )
        yield f"| {' | '.join(map(_cell, (name, values, flag.help)))} |"


def _arguments(arguments: Sequence[Argument]) -> Iterator[str]:
    """Yield the table of the arguments of a command; every command takes ``--json``."""
    if arguments:
        yield "| argument | values | meaning |"
        yield "|---|---|---|"
    for each in arguments:
        name = ", ".join(f"`{word}`" for word in each.words)
        values = ", ".join(map(str, each.options.get("choices", ())))
        if not values and each.is_flag and each.kind is not bool:
            values = {Path: "path", int: "integer", float: "number"}.get(each.kind, "text")
        yield f"| {' | '.join(map(_cell, (name, values, each.options.get('help', ''))))} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the table of a parser's arguments; a group with a title has a table of its own."""
    has_table = False
    for group in parser._action_groups:
        actions = [
            action
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        if not actions:
            continue
        has_title = group.title not in ("positional arguments", "options")
        if has_title:
            yield f"\n**{group.title}**\n"
        if has_title or not has_table:
            yield "| argument | values | meaning |"
            yield "|---|---|---|"
        has_table = True
        for action in actions:
            yield f"| {' | '.join(map(_cell, _argument(action)))} |"


def _argument(action: argparse.Action) -> tuple[str, str, str]:
    words = action.option_strings or [str(action.metavar or action.dest)]
    name = ", ".join(f"`{word}`" for word in words)
    values = ", ".join(map(str, action.choices)) if action.choices else ""
    if not values and action.nargs != 0 and action.option_strings:
        kind = getattr(action.type, "__name__", "text")
        values = {"str": "text", "Path": "path", "int": "integer", "float": "number"}.get(
            kind, "text"
        )
    return name, values, (action.help or "").replace("%%", "%")


def pages() -> dict[str, str]:
    """Return the generated pages of the site by the names of their files."""
    return {
        "configuration.md": configuration_page(),
        "commands.md": commands_page(),
        "ops.md": ops_page(),
        **error_pages(),
    }


def schemas() -> Mapping[Path, str]:
    """Return the content of every schema, and of the zoo's list of keys, by its path."""
    kinds: tuple[FileKind, ...] = get_args(FileKind)
    sections = {name: family.config for name, family in MODELS.items()} | dict(DATA_PROCESSORS)
    return {
        **{
            DOCS / "schema" / f"{kind}.json": json.dumps(schema_of(kind), indent=1) + "\n"
            for kind in kinds
        },
        KEYS: written(sections),
    }


def write_pages(folder: Path) -> None:
    """Write the generated pages into a folder."""
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the schemas, and the pages if a folder is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="write the pages, too")
    options = parser.parse_args()
    for path, text in schemas().items():
        path.write_text(text, encoding="utf-8")
    if options.pages is not None:
        write_pages(options.pages)


if __name__ == "__main__":
    main()
