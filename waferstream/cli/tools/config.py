"""``waferstream config``: params files, and the keys of all files."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from appliance.spec import load_cluster
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import new_file
from waferstream.cli.frame.output import print_rows, prints_json, show, tell, tell_paths
from waferstream.config.legacy import convert_legacy, is_legacy
from waferstream.config.phases import check_sections, load_params
from waferstream.config.schema.files import FileKind, schema_of
from waferstream.config.schema.keys import ConfigKey, all_keys, find_keys
from waferstream.core.config import dump_yaml, load_yaml
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.plugins import Plugins
from waferstream.host.files import write_text
from waferstream.reports.run.kept import flat

_Config = Annotated[Path, Argument(help="params file")]
_Out = Annotated[Path, Option("-o", "--out", help="file or folder")]


def stock_files() -> dict[str, Path]:
    """Return the params files that ``pull`` copies, by name."""
    folders = Plugins[Path]("params").values()
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


@command("config pull", "gpt2_small -o gpt2.yaml")
def pull(
    variant: Annotated[str, Argument(help=f"one of {', '.join(stock_files())}")], out: _Out = Path()
) -> int:
    """Copy a params file that comes with the program."""
    name = variant.removesuffix(".yaml").removeprefix("params_")
    files = stock_files()
    if name not in files:
        raise ConfigError(
            "the variant must be that of a params file that comes with the program",
            code="unknown-variant",
            value=variant,
            rule=f"one of {', '.join(files)}",
            remedy=did_you_mean(name, files),
        )
    path = files[name]
    return _write(out, path.read_text(encoding="utf-8"), path.name)


@command("config convert_legacy", "legacy.yaml -o params.yaml")
def convert(config: _Config, out: _Out = Path()) -> int:
    """Convert the legacy layout to the Trainer layout."""
    data = load_yaml(config)
    if not is_legacy(data):
        raise ConfigError(
            "the file must be in the legacy layout",
            code="not-legacy",
            where=str(config),
            value=", ".join(map(str, data)),
            rule="sections train_input, eval_input, model, optimizer, runconfig",
        )
    return _write(out, dump_yaml(convert_legacy(data, str(config))), config.name)


def _write(out: Path, text: str, name: str) -> int:
    """Write a file, or below it under ``name`` if that is a folder; print its path."""
    path = out / name if out.is_dir() else out
    write_text(new_file(path, "name another file with -o"), text)
    return tell_paths(path)


@command("config validate", "params.yaml")
def check(config: _Config) -> int:
    """Check every key of a params file."""
    params = load_params(config)
    check_sections(params)
    # Importing torch takes seconds: report a wrong file before that.
    from waferstream.workload.data import check_section  # noqa: PLC0415
    from waferstream.workload.models import check_model  # noqa: PLC0415

    check_model(params.trainer.init.model.dump(), "trainer.init.model")
    for where, loader in params.trainer.dataloaders():
        check_section(loader.dump(), where)
    return tell(f"{config} is valid.", path=config, valid=True)


@command("config diff", "params.yaml other.yaml")
def diff(
    left: _Config,
    right: _Config,
    verbose_level: Annotated[
        Literal[0, 1, 2],
        Option("-v", "--verbose_level", help="0 names the keys, 1 adds changed values, 2 all"),
    ] = 2,
) -> int:
    """Compare two params files, with all defaults filled in; the exit code is 1 if they differ."""
    one, two = (dict(flat(load_params(path).dump())) for path in (left, right))
    differing = [key for key in {**one, **two} if one.get(key, _NONE) != two.get(key, _NONE)]
    if prints_json():
        sides = (("left", one), ("right", two))
        print_rows(
            [
                {"key": key, **{side: found[key] for side, found in sides if key in found}}
                for key in differing
            ]
        )
    else:
        for key in differing:
            print(_difference(key, one.get(key, _NONE), two.get(key, _NONE), verbose_level))
    return 1 if differing else 0


_NONE = object()


def _difference(key: str, left: object, right: object, level: int) -> str:
    """Return the line of one key: level 0 names it, 1 adds changed values, 2 all values."""
    if right is _NONE:
        return f"- {key}: {left!r}" if level > 1 else f"- {key}"
    if left is _NONE:
        return f"+ {key}: {right!r}" if level > 1 else f"+ {key}"
    return f"~ {key}: {left!r} -> {right!r}" if level else f"~ {key}"


_COLUMNS = ("name", "shape", "parameters", "percent")


@command("config stats", "params.yaml --order_by parameters --descending")
def count_parameters(
    params: _Config,
    order_by: Annotated[
        str | None, Option(help=f"columns to sort by: {', '.join(_COLUMNS)}")
    ] = None,
    descending: Annotated[bool, Option(help="sort from the largest")] = False,
) -> int:
    """Count the parameters of a model, and show their shapes."""
    from waferstream.workload.models import parameter_shapes  # noqa: PLC0415

    order = order_by.split(",") if order_by else []
    for name in order:
        if name not in _COLUMNS:
            raise ConfigError(
                "--order_by must name columns",
                code="unknown-column",
                value=name,
                rule=f"of {', '.join(_COLUMNS)}",
                remedy=did_you_mean(name, _COLUMNS),
            )
    shapes = parameter_shapes(load_params(params).trainer.init.model.dump())
    counts = {name: prod(shape) for name, shape in shapes.items()}
    total = sum(counts.values())
    shares = {name: round(100 * count / total, 2) for name, count in counts.items()}
    rows = [
        dict(zip(_COLUMNS, (name, shapes[name], counts[name], shares[name]), strict=True))
        for name in shapes
    ]
    if order:
        rows.sort(key=lambda row: [row[name] for name in order], reverse=descending)
    return show([*rows, dict(zip(_COLUMNS, ("total", (), total, 100), strict=True))])


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
    facts = ("section", "type", "default", "unit", "source", "status")
    row = {"key": key.path, "file": f"{key.file}.yaml"}
    row |= {name: getattr(key, name) for name in facts} | {"meaning": key.meaning or key.about}
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
