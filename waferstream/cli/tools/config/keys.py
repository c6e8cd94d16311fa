"""``waferstream config schema`` and ``explain``: the keys of params.yaml and cluster.yaml."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from appliance.spec import load_cluster
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import print_rows, prints_json
from waferstream.config.legacy import is_legacy
from waferstream.config.phases import load_params
from waferstream.config.schema.files import FileKind, schema_of
from waferstream.config.schema.keys import ConfigKey, all_keys, find_keys
from waferstream.core.config import load_yaml

_WIDTH = 100


@command("config schema", "cluster")
def schema(kind: Annotated[FileKind, Argument(help="params.yaml or cluster.yaml")]) -> int:
    """Print the JSON schema of a file, for editors."""
    print(json.dumps(schema_of(kind), indent=1))
    return 0


@command("config explain", "machine.swarmx.fan_out cluster.yaml")
def explain(
    key: Annotated[
        str, Argument(help="dotted path, or its end: trainer.init.loop.max_steps, link")
    ],
    file: Annotated[Path | None, Argument(help="file whose value is printed, too")] = None,
) -> int:
    """Print type, default, unit and source of a key of params.yaml or cluster.yaml."""
    values = _values(file) if file is not None else {}
    keys = _merged(find_keys(key, all_keys()))
    rows = [{**_row(each), **_value(each, values)} for each in keys]
    if prints_json():
        return print_rows(rows)
    print("\n\n".join(map(_block, rows)))
    return 0


def _merged(keys: Sequence[ConfigKey]) -> list[ConfigKey]:
    """Join keys that differ only in the section that declares them."""
    sections: dict[ConfigKey, list[str]] = {}
    for key in keys:
        sections.setdefault(replace(key, section=""), []).append(key.section)
    return [replace(key, section=", ".join(names)) for key, names in sections.items()]


def _row(key: ConfigKey) -> dict[str, str]:
    """Return the filled-in facts about a key."""
    row = {
        "key": key.path,
        "file": f"{key.file}.yaml",
        "section": key.section,
        "type": key.type,
        "default": key.default,
        "unit": key.unit,
        "source": key.source,
        "status": key.status,
        "meaning": key.meaning or key.about,
    }
    return {name: text for name, text in row.items() if text}


def _values(file: Path) -> dict[FileKind, Any]:
    """Return the resolved content of a file by its kind."""
    if "trainer" in (data := load_yaml(file)) or is_legacy(data):
        return {"params": load_params(file).dump()}
    return {"cluster": load_cluster(file).model_dump(mode="json")}


def _value(key: ConfigKey, values: Mapping[FileKind, Any]) -> dict[str, Any]:
    found = list(_at(values.get(key.file), key.path))
    return {"value": found[0] if len(found) == 1 else found} if found else {}


def _at(data: Any, path: str) -> Iterator[Any]:
    """Yield the values at a dotted path, of every entry of a list on the way."""
    if not path:
        yield data
    elif isinstance(data, list):
        for each in data:
            yield from _at(each, path)
    elif isinstance(data, Mapping):
        for name, value in data.items():
            if path == name or path.startswith(f"{name}."):
                yield from _at(value, path[len(name) + 1 :])


def _block(row: Mapping[str, Any]) -> str:
    lines = [row["key"]]
    for name, value in row.items():
        if name != "key":
            text = value if isinstance(value, str) else json.dumps(value)
            lines += textwrap.wrap(
                text, _WIDTH, initial_indent=f"  {name:9}", subsequent_indent=" " * 11
            )
    return "\n".join(lines)
