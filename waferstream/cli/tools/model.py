"""``waferstream model``: list, info, describe, init_checkpoint."""

from __future__ import annotations

import argparse
import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.command import TABLE_FLAGS, Command, argument, show, tell_paths
from waferstream.cli.tools.config import stock_files
from waferstream.config.phases import load_params
from waferstream.core.config import Config, load_yaml
from waferstream.training.setup.model import make_model
from waferstream.workload.models import MODELS, model_family


def _list(given: argparse.Namespace) -> int:
    variants = _variants()
    rows = [
        {"name": name, "class": family.module.__name__, "variants": variants[name]}
        for name, family in sorted(MODELS.items())
    ]
    return show(given, rows)


def _variants() -> dict[str, list[str]]:
    """Return the params files that come with the program, by model."""
    found = defaultdict[str, list[str]](list)
    for variant, path in stock_files().items():
        data = load_yaml(path)
        found[data["trainer"]["init"]["model"]["name"]].append(variant)
    return found


def _info(given: argparse.Namespace) -> int:
    family = model_family(given.model, "model")
    summary = {
        "name": given.model,
        "class": f"{family.module.__module__}.{family.module.__name__}",
        "about": first_line(family.module),
        "variants": ", ".join(_variants()[given.model]),
    }
    return show(given, [{"field": key, "value": value} for key, value in summary.items()])


def _describe(given: argparse.Namespace) -> int:
    return show(given, field_rows(model_family(given.model, "model").config))


def field_rows(config: type[Config]) -> list[dict[str, Any]]:
    """Return name, type and default of the keys of a configuration."""
    return [
        {
            "key": field.alias or name,
            "type": _type_name(field.annotation),
            "default": "required" if field.is_required() else field.get_default(),
        }
        for name, field in config.model_fields.items()
    ]


def _type_name(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.replace("typing.", "")


def first_line(subject: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(subject) or "").split("\n")[0]


def _init_checkpoint(given: argparse.Namespace) -> int:
    """Write the initial weights that a run of a params file starts from."""
    init = load_params(given.params).trainer.init
    path = given.out / "checkpoint_0.mdl" if given.out.is_dir() else given.out
    new_file(path, "name another file with -o")
    model = make_model(init)
    write_weights(path, model.state_dict(), {"global_step": 0, "seed": init.seed})
    return tell_paths(given, path)


_MODEL = argument("model", help="name of a model")

COMMANDS = (
    Command("list", "list the models", _list, TABLE_FLAGS),
    Command("info", "summarize a model", _info, (_MODEL, *TABLE_FLAGS)),
    Command("describe", "list the keys of a model", _describe, (_MODEL, *TABLE_FLAGS)),
    Command(
        "init_checkpoint",
        "write the initial weights of a params file",
        _init_checkpoint,
        (
            argument("params", type=Path, help="params file"),
            argument(
                "-o",
                "--out",
                type=Path,
                default=Path(),
                help="file, or folder for checkpoint_0.mdl (default: here)",
            ),
        ),
    ),
)
