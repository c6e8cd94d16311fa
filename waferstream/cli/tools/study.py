"""``waferstream study``: a grid over any keys, as a table, as data and as a picture for a paper."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from waferstream.cli.frame.files import cluster_file
from waferstream.cli.frame.output import prints_json
from waferstream.cli.tools.command import Argument, Command, argument
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.units import parse_count
from waferstream.host.files import json_text
from waferstream.host.terminal import line_width, log_to_terminal
from waferstream.reports.economics import PriceSpec, check_tokens
from waferstream.scaling.sweep import SimulationRequest
from waferstream.studies.grid import Grid
from waferstream.studies.result import check_output
from waferstream.studies.text import study_text, told

WIDTHS = ("column", "page", "screen")

FILES: tuple[Argument, ...] = (
    argument("params", type=Path, help="params file that keys change"),
    argument("--cluster", type=Path, help="cluster.yaml (default: that of this folder)"),
)
PRICES: tuple[Argument, ...] = (
    argument("--system_hour_price", type=float, help="USD of an hour of one system"),
    argument("--kwh_price", type=float, help="USD of a kilowatt-hour"),
)
OUT = argument(
    "--out",
    action="append",
    type=Path,
    help="file to write: .csv, .parquet, .json; of a study .pdf, .svg, .png; may be repeated",
)


def grid_of(typed: list[tuple[str, str]] | None) -> Grid:
    """Return the grid of ``KEY=VALUES`` words; ConfigError for a key that comes twice."""
    pairs = typed or []
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            "a key may vary once",
            code="duplicate-key",
            where="--over",
            value=twice[0],
            remedy="give all its values in one list",
        )
    return Grid.parse(dict(pairs))


def key_values(text: str) -> tuple[str, str]:
    """Split ``KEY=VALUES``."""
    key, equals, values = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUES")
    return key, values


def prices_of(given: argparse.Namespace) -> PriceSpec:
    """Return the prices that are typed."""
    names = ("system_hour_price", "kwh_price")
    typed = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    return validate(PriceSpec, typed, "command line")


def _study(given: argparse.Namespace) -> int:
    """Tell the grid, run it, print its rows, and write what is asked for."""
    start_s = time.perf_counter()
    grid = grid_of(given.over)
    outputs = [check_output(path) for path in given.out or ()]
    if given.token_budget is not None:
        check_tokens(given.token_budget, "--token_budget")
    print(told(grid), file=sys.stderr, flush=True)
    if given.tell:
        return 0
    log_to_terminal("WARNING")
    from waferstream.studies.running import run_study  # noqa: PLC0415  (torch)

    request = SimulationRequest(token_budget=given.token_budget, prices=prices_of(given))
    result = run_study(given.params, grid, cluster_file(given.cluster), request, start_s)
    for path in outputs:
        result.write(path, given.width)
    if prints_json():
        print(json_text({"study": result.origin, "rows": result.records}))
    else:
        print("\n".join([study_text(result, line_width()), *map(str, outputs)]))
    return 0


COMMANDS = (
    Command(
        "",
        "simulate every combination of the values of some keys, strong and weak scaling among "
        "them: waferstream study gpt2.yaml --over num_csx=1-64:x2 --over system=CS-2,CS-3 "
        "--over scaling=strong,weak --out curve.pdf --width column",
        _study,
        (
            *FILES,
            argument(
                "--over",
                action="append",
                type=key_values,
                metavar="KEY=VALUES",
                help="key that varies: machine.swarmx.fan_out=2,3 model.hidden_size=768-2048:+256 "
                "num_csx=1-64:x2; batch_size, micro_batch_size, system, scaling are short names",
            ),
            argument(
                "--token_budget", type=parse_count, help="add days, energy and cost of 300B tokens"
            ),
            *PRICES,
            OUT,
            argument(
                "--width", choices=WIDTHS, default="page", help="of a picture (default: page)"
            ),
            argument("--tell", action="store_true", help="say how large it is, and do nothing"),
        ),
    ),
)
