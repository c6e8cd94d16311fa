"""``waferstream train``, ``eval``, ``simulate``, ``trace`` and the vendor's forms of them."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from waferstream.cli.arguments import KEYS, OVER, arguments_of, form_command, given
from waferstream.cli.flags.forms import FORMS
from waferstream.cli.frame.commands import DECLARED, WORDS
from waferstream.cli.frame.options import cluster_file
from waferstream.cli.frame.output import ask_for_json
from waferstream.cli.run import run


def _run(ctx: Any) -> int:
    words = ctx.meta[WORDS]
    if ctx.meta.get(OVER):
        return _study(ctx)
    run(arguments_of(ctx, words), shlex.join([Path(sys.argv[0]).name, *words]))
    return 0


def _study(ctx: Any) -> int:
    """Simulate a study over the values of keys; those that do not vary have one value."""
    from waferstream.cli.tools.study import Prices, study  # noqa: PLC0415  (studies)

    typed = given(ctx.params)
    values = dict([*ctx.meta[KEYS], *ctx.meta[OVER]])
    values |= {name: f"{typed.pop(name)}" for name in ("num_csx", "batch_size") if name in typed}
    if "system" in typed:
        values["system"] = ",".join(map(str, typed.pop("system")))
    if typed.pop("weak_scaling", False):
        values["scaling"] = "weak"
    ask_for_json(typed.pop("json", False))
    asked = {
        "params": Path(typed.pop("params")),
        "cluster": cluster_file(typed.pop("cluster", None), (Path(), ctx.obj)),
        "prices": Prices(typed.pop("system_hour_price", None), typed.pop("kwh_price", None)),
        "token_budget": typed.pop("token_budget", None),
        "over": [f"{name}={value}" for name, value in values.items()],
    }
    if typed:
        ctx.fail(f"--{next(iter(typed))} cannot be combined with keys that have several values")
    return study(**asked)


DECLARED.update((name, partial(form_command, name, _run)) for name in FORMS)
