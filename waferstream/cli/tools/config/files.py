"""``waferstream config``: pull, validate, convert_legacy, diff, stats, schema, explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import print_rows, prints_json, show, tell, tell_paths
from waferstream.config.legacy import convert_legacy, is_legacy
from waferstream.config.params import Params
from waferstream.config.phases import check_sections, load_params
from waferstream.core.config import dump_yaml, load_yaml
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.plugins import Plugins
from waferstream.host.files import replacing

_Config = Annotated[Path, Argument(help="params file")]
_Out = Annotated[Path, Option("-o", "--out", help="file or folder")]


def stock_files() -> dict[str, Path]:
    """Return the params files that ``pull`` copies, by name."""
    folders = Plugins[Path]("params").values()
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


@command("config pull", "gpt2_small -o gpt2.yaml")
def pull(
    variant: Annotated[str, Argument(help=f"one of {', '.join(stock_files())}")],
    out: _Out = Path(),
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
    if path.exists():
        raise ConfigError(
            "the file must not exist yet",
            code="file-exists",
            where=str(path),
            remedy="name another file with -o",
        )
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return tell_paths(path)


@command("config validate", "params.yaml")
def check(config: _Config) -> int:
    """Check every key of a params file."""
    params = load_params(config)
    check_sections(params)
    _check_registered(params)
    return tell(f"{config} is valid.", path=config, valid=True)


def _check_registered(params: Params) -> None:
    """Validate model and data loaders with the classes that they name; raise ConfigError."""
    # Importing torch takes seconds: report a wrong file before that.
    from waferstream.workload.data import check_section  # noqa: PLC0415
    from waferstream.workload.models import check_model  # noqa: PLC0415

    check_model(params.trainer.init.model.dump(), "trainer.init.model")
    for where, loader in params.trainer.dataloaders():
        check_section(loader.dump(), where)


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
    one, two = (dict(_leaves(load_params(path).dump())) for path in (left, right))
    differing = [key for key in {**one, **two} if one.get(key, _NONE) != two.get(key, _NONE)]
    if prints_json():
        sides = (("left", one), ("right", two))
        rows = [
            {"key": key, **{side: found[key] for side, found in sides if key in found}}
            for key in differing
        ]
        print_rows(rows)
        return 1 if differing else 0
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


def _leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings and lists with their dotted key paths."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and data:
        for index, value in enumerate(data):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, data


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
    model = load_params(params).trainer.init.model.dump()
    rows = parameter_rows(parameter_shapes(model))
    if order:
        rows.sort(key=lambda row: [row[name] for name in order], reverse=descending)
    total = sum(row["parameters"] for row in rows)
    return show([*rows, {"name": "total", "shape": (), "parameters": total, "percent": 100}])


def parameter_rows(shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, Any]]:
    """Return name, shape, number of elements and share of the total of each parameter."""
    counts = {name: prod(shape) for name, shape in shapes.items()}
    total = sum(counts.values())
    return [
        {
            "name": name,
            "shape": shapes[name],
            "parameters": count,
            "percent": round(100 * count / total, 2),
        }
        for name, count in counts.items()
    ]
