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
from typing import Any, get_args

from modelzoo import KEYS
from scripts.configuration_tasks import TASKS, task_of
from scripts.error_pages import error_pages
from scripts.op_table import page as ops_page
from waferstream.cli.app import COMMANDS
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

All commands and their flags, made from the commands themselves when the site is built.
`run.py` is `waferstream` from a checkout. A flag overrides the same key of the params file
([configuration.md](configuration.md)). Every command takes `--json`.
"""

_KINDS = {bool: "", int: "integer", float: "number", Path: "path", list[Path]: "path"}

_EVERYWHERE = {"json", "no_pager"}
"""Flags of every command."""


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
    for name, entry in COMMANDS.items():
        parts += _command(f"waferstream {name}", entry.load(name))
    return "\n".join(parts) + "\n"


def _command(words: str, command: Any, level: int = 2) -> Iterator[str]:
    """Yield the section of a command, or of a group with those of its commands."""
    yield f"\n{'#' * level} {words}\n"
    yield _markdown(" ".join((command.help or "").split()))
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(f"{words} {name}", below, min(level + 1, 4))
    if hasattr(command, "commands"):
        return
    if command.epilog:
        yield f"\n`{command.epilog.removeprefix('Example: ')}`"
    panels: dict[str, list[Any]] = {}
    for each in command.params:
        if not each.hidden and each.name not in _EVERYWHERE:
            panels.setdefault(each.rich_help_panel or "", []).append(each)
    for title, flags in panels.items():
        yield f"\n**{title}**\n" if title else ""
        yield "| argument | values | meaning |"
        yield "|---|---|---|"
        for each in flags:
            yield f"| {' | '.join(map(_cell, _flag(each)))} |"
    if any(each.hidden for each in command.params):
        yield "\nThe other flags are those of `waferstream run`, as far as they apply."


def _flag(flag: Any) -> tuple[str, str, str]:
    """Return names, values and meaning of an argument."""
    is_flag = flag.opts[0].startswith("-")
    names = flag.opts if is_flag else [flag.metavar or flag.name]
    kind = flag.type_descriptor
    values = _KINDS.get(kind.annotation, "text") if is_flag else ""
    if kind.is_choice:
        values = ", ".join(str(getattr(each, "value", each)) for each in kind.choices)
    meaning = (flag.help or "").replace("\\[", "[")
    if flag.show_default and flag.default not in (None, False, ""):
        meaning += f" (default: {flag.default})"
    return ", ".join(f"`{name}`" for name in names), values, meaning


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
