"""``waferstream config``: pull, validate, convert_legacy, diff, stats, schema, explain."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from waferstream.cli.frame.output import print_rows, prints_json, show, tell, tell_paths
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.config_keys import KEY_COMMANDS
from waferstream.config.legacy import convert_legacy, is_legacy
from waferstream.config.params import Params
from waferstream.config.phases import check_sections, load_params
from waferstream.core.config import dump_yaml, load_yaml
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.plugins import Plugins
from waferstream.host.files import replacing


def stock_files() -> dict[str, Path]:
    """Return the params files that ``pull`` copies, by name."""
    folders = Plugins[Path]("params").values()
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def _pull(given: argparse.Namespace) -> int:
    variant = given.variant.removesuffix(".yaml").removeprefix("params_")
    files = stock_files()
    if variant not in files:
        raise ConfigError(
            "the variant must be that of a params file that comes with the program",
            code="unknown-variant",
            value=given.variant,
            rule=f"one of {', '.join(files)}",
            remedy=did_you_mean(variant, files),
        )
    path = files[variant]
    return _write(given, path.read_text(encoding="utf-8"), path.name)


def _convert_legacy(given: argparse.Namespace) -> int:
    data = load_yaml(given.config)
    if not is_legacy(data):
        raise ConfigError(
            "the file must be in the legacy layout",
            code="not-legacy",
            where=str(given.config),
            value=", ".join(map(str, data)),
            rule="sections train_input, eval_input, model, optimizer, runconfig",
        )
    return _write(given, dump_yaml(convert_legacy(data, str(given.config))), given.config.name)


def _write(given: argparse.Namespace, text: str, name: str) -> int:
    """Write the file ``-o``, or below it under ``name`` if that is a folder; print its path."""
    path: Path = given.out / name if given.out.is_dir() else given.out
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


def _validate(given: argparse.Namespace) -> int:
    params = load_params(given.config)
    check_sections(params)
    _check_registered(params)
    return tell(f"{given.config} is valid.", path=given.config, valid=True)


def _check_registered(params: Params) -> None:
    """Validate model and data loaders with the classes that they name; raise ConfigError."""
    # Importing torch takes seconds: report a wrong file before that.
    from waferstream.workload.data import check_section  # noqa: PLC0415
    from waferstream.workload.models import check_model  # noqa: PLC0415

    check_model(params.trainer.init.model.dump(), "trainer.init.model")
    for where, loader in params.trainer.dataloaders():
        check_section(loader.dump(), where)


def _diff(given: argparse.Namespace) -> int:
    """Print the keys whose values differ between two resolved configurations."""
    left, right = (dict(_leaves(load_params(path).dump())) for path in (given.left, given.right))
    differing = [key for key in {**left, **right} if left.get(key, _NONE) != right.get(key, _NONE)]
    if prints_json():
        sides = (("left", left), ("right", right))
        rows = [
            {"key": key, **{side: found[key] for side, found in sides if key in found}}
            for key in differing
        ]
        print_rows(rows)
        return 1 if differing else 0
    for key in differing:
        print(_difference(key, left.get(key, _NONE), right.get(key, _NONE), given.verbose_level))
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


def _stats(given: argparse.Namespace) -> int:
    """Show the parameters of a model with their shapes and counts."""
    from waferstream.workload.models import parameter_shapes  # noqa: PLC0415

    order = given.order_by.split(",") if given.order_by else []
    for name in order:
        if name not in _COLUMNS:
            raise ConfigError(
                "--order_by must name columns",
                code="unknown-column",
                value=name,
                rule=f"of {', '.join(_COLUMNS)}",
                remedy=did_you_mean(name, _COLUMNS),
            )
    model = load_params(given.params).trainer.init.model.dump()
    rows = parameter_rows(parameter_shapes(model))
    if order:
        rows.sort(key=lambda row: [row[name] for name in order], reverse=given.descending)
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


_OUT = argument("-o", "--out", type=Path, default=Path(), help="file or folder (default: here)")
_CONFIG = argument("config", type=Path, help="params file")

COMMANDS = (
    Command(
        "pull",
        "copy a params file that comes with the program",
        _pull,
        (
            argument("variant", help=f"one of {', '.join(stock_files())}"),
            _OUT,
        ),
    ),
    Command("validate", "check every key of a params file", _validate, (_CONFIG,)),
    Command(
        "convert_legacy",
        "convert the legacy layout to the Trainer layout",
        _convert_legacy,
        (_CONFIG, _OUT),
    ),
    Command(
        "diff",
        "compare two params files, with all defaults filled in",
        _diff,
        (
            argument("left", type=Path, help="params file"),
            argument("right", type=Path, help="params file"),
            argument(
                "-v",
                "--verbose_level",
                type=int,
                choices=(0, 1, 2),
                default=2,
                help="0 names the keys, 1 adds changed values, 2 all values (default: 2)",
            ),
        ),
    ),
    Command(
        "stats",
        "count the parameters of a model",
        _stats,
        (
            argument("params", type=Path, help="params file"),
            argument("--order_by", help=f"columns to sort by: {', '.join(_COLUMNS)}"),
            argument("--descending", action="store_true", help="sort from the largest"),
        ),
    ),
    *KEY_COMMANDS,
)
