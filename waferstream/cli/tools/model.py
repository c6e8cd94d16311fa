"""``waferstream model``: list, info, describe, init_checkpoint."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from waferstream.cli.frame.output import show, tell_paths
from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.command import Command, argument, field_rows, first_line
from waferstream.cli.tools.config import stock_files
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml
from waferstream.training.setup.model import make_model
from waferstream.workload.models import MODELS, model_family


def _list(_given: argparse.Namespace) -> int:
    variants = _variants()
    rows = [
        {"name": name, "class": family.module.__name__, "variants": variants[name]}
        for name, family in sorted(MODELS.items())
    ]
    return show(rows)


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
    return show([{"field": key, "value": value} for key, value in summary.items()])


def _describe(given: argparse.Namespace) -> int:
    return show(field_rows(model_family(given.model, "model").config))


def _init_checkpoint(given: argparse.Namespace) -> int:
    """Write the initial weights that a run of a params file starts from."""
    init = load_params(given.params).trainer.init
    path = given.out / "checkpoint_0.mdl" if given.out.is_dir() else given.out
    new_file(path, "name another file with -o")
    model = make_model(init)
    write_weights(path, model.state_dict(), {"global_step": 0, "seed": init.seed})
    return tell_paths(path)


_MODEL = argument("model", help="name of a model")

COMMANDS = (
    Command("list", "list the models", _list),
    Command("info", "summarize a model", _info, (_MODEL,)),
    Command("describe", "list the keys of a model", _describe, (_MODEL,)),
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
