"""``waferstream train``, ``eval``, ``simulate``, ``trace`` and the vendor's forms of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from waferstream.cli.arguments import KEYS, OVER, arguments_of, form_command
from waferstream.cli.frame.commands import WORDS, parse
from waferstream.cli.frame.files import cluster_file
from waferstream.cli.run import run
from waferstream.cli.tools.study import app as study_app


def running_command(name: str) -> Any:
    """Return the command of a form, which does what it is told."""
    return form_command(name, _run)


def _run(ctx: Any) -> int:
    words = ctx.meta[WORDS]
    if ctx.meta.get(OVER):
        return _study(ctx)
    run(arguments_of(ctx, words), shlex.join([Path(sys.argv[0]).name, *words]))
    return 0


def _study(ctx: Any) -> int:
    """Simulate a study over the values of keys; those that do not vary have one value."""
    typed = {
        name: value
        for name, value in ctx.params.items()
        if value is not None and value is not False and value != ()
    }
    words = [typed.pop("params")]
    values = dict([*ctx.meta[KEYS], *ctx.meta[OVER]])
    values |= {name: f"{typed.pop(name)}" for name in ("num_csx", "batch_size") if name in typed}
    if "system" in typed:
        values["system"] = ",".join(map(str, typed.pop("system")))
    if typed.pop("weak_scaling", False):
        values["scaling"] = "weak"
    if typed.pop("json", False):
        words.append("--json")
    if found := cluster_file(typed.pop("cluster", None), (Path(), ctx.obj)):
        words.append(f"--cluster={found}")
    for name in ("token_budget", "system_hour_price", "kwh_price"):
        if name in typed:
            words.append(f"--{name}={typed.pop(name)}")
    if typed:
        ctx.fail(f"--{next(iter(typed))} cannot be combined with keys that have several values")
    words += [f"--over={name}={value}" for name, value in values.items()]
    return run_study(words, ctx.obj)


def run_study(words: list[str], home: Path) -> int:
    """Run ``waferstream study``; return its exit code."""
    study = parse(study_app.built(), words, home)
    with study:
        code: int = study.command.invoke(study)
    return code
