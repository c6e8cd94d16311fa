"""``waferstream model``: list, info, describe, init_checkpoint."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.files import Params
from waferstream.cli.frame.output import show, tell_paths
from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.config.files import stock_files
from waferstream.cli.tools.described import field_rows, first_line
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml

_Model = Annotated[str, Argument(help="name of a model")]


@command("model list")
def list_models() -> int:
    """List the models."""
    from waferstream.workload.models import MODELS  # noqa: PLC0415  (torch)

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


@command("model info", "gpt2")
def summarize(model: _Model) -> int:
    """Summarize a model."""
    from waferstream.workload.models import model_family  # noqa: PLC0415  (torch)

    family = model_family(model, "model")
    summary = {
        "name": model,
        "class": f"{family.module.__module__}.{family.module.__name__}",
        "about": first_line(family.module),
        "variants": ", ".join(_variants()[model]),
    }
    return show([{"field": key, "value": value} for key, value in summary.items()])


@command("model describe", "gpt2")
def describe(model: _Model) -> int:
    """List the keys of a model."""
    from waferstream.workload.models import model_family  # noqa: PLC0415  (torch)

    return show(field_rows(model_family(model, "model").config))


@command("model init_checkpoint", "params.yaml -o initial.mdl")
def init_checkpoint(
    params: Params,
    out: Annotated[
        Path, Option("-o", "--out", help="file, or folder for checkpoint_0.mdl")
    ] = Path(),
) -> int:
    """Write the initial weights of a params file."""
    init = load_params(params).trainer.init
    path = out / "checkpoint_0.mdl" if out.is_dir() else out
    new_file(path, "name another file with -o")
    from waferstream.training.setup.model import make_model  # noqa: PLC0415  (torch)

    model = make_model(init)
    write_weights(path, model.state_dict(), {"global_step": 0, "seed": init.seed})
    return tell_paths(path)
