"""``waferstream study`` and ``search``: grids over any keys, as tables, data and pictures."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Cluster, Params, tokens_of
from waferstream.cli.frame.output import answer
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.host.terminal import line_width, log_to_terminal
from waferstream.reports.economics import PriceSpec
from waferstream.reports.records import write_records
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.studies.candidates import Goal, Objective, Space, batches_around
from waferstream.studies.grid import Axis, Grid
from waferstream.studies.result import check_output
from waferstream.studies.text import search_text, study_text, told

Over = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUES",
        help="key that varies, with a list or a range: 2,4,8 or 1-64:x2; may be repeated",
    ),
]
Outputs = Annotated[
    list[Path] | None,
    Option(
        help="file to write: .csv, .parquet, .json; of a study .pdf, .svg, .png; again for more"
    ),
]


@dataclass(frozen=True)
class Prices:
    """Flags of prices."""

    system_hour_price: Annotated[float | None, Option(help="USD of an hour of one system")] = None
    kwh_price: Annotated[float | None, Option(help="USD of a kilowatt-hour")] = None

    def request(self, tokens: float | None) -> SimulationRequest:
        """Return what is asked of each simulation; ConfigError if a price is out of range."""
        typed = {name: value for name, value in asdict(self).items() if value is not None}
        prices = validate(PriceSpec, typed, "command line")
        return SimulationRequest(token_budget=tokens, prices=prices)


@command(
    "study",
    "params.yaml --over scaling=strong,weak --over num_csx=1-64:x2 --over system=CS-2,CS-3 "
    "--out curve.pdf --width column",
)
def study(
    params: Params,
    prices: Prices,
    cluster: Cluster = None,
    over: Over = None,
    token_budget: Annotated[
        str | None, Option(help="add days, energy and cost of so many tokens: 300B")
    ] = None,
    out: Outputs = None,
    width: Annotated[Literal["column", "page", "screen"], Option(help="of a picture")] = "page",
    tell: Annotated[bool, Option(help="say how large it is, and do nothing")] = False,
) -> int:
    """Simulate every combination of the values of some keys, strong and weak scaling among them.

    Keys are those of params.yaml and cluster.yaml; batch_size, micro_batch_size, num_csx, system
    and scaling are short names. The exit code is 1 if no combination is possible.
    """
    start_s = time.perf_counter()
    grid = _grid(over)
    outputs = [check_output(path) for path in out or ()]
    tokens = None if token_budget is None else tokens_of(token_budget, "--token_budget")
    print(told(grid), file=sys.stderr, flush=True)
    if tell:
        return 0
    log_to_terminal("WARNING")
    from waferstream.studies.running import run_study  # noqa: PLC0415  (torch)

    result = run_study(params, grid, cluster, prices.request(tokens), start_s)
    for path in outputs:
        result.write(path, width)
    answer(
        {"study": result.origin, "rows": result.records},
        "\n".join([study_text(result, line_width()), *map(str, outputs)]),
    )
    return 0 if result.is_possible else 1


@command(
    "search", "params.yaml --budget 300B --objective cost --most_days 30 --over system=CS-2,CS-3"
)
def search(
    params: Params,
    budget: Annotated[str, Option(help="tokens of the training, as in 300B")],
    prices: Prices,
    cluster: Cluster = None,
    objective: Annotated[Objective, Option(help="what is least")] = "days",
    num_csx: Annotated[str, Option(help="systems to choose from")] = "1-64",
    batch_size: Annotated[
        str | None, Option(help="batches to choose from (default: a quarter to 4 x the file's)")
    ] = None,
    over: Over = None,
    most_days: Annotated[float | None, Option(help="limit of days")] = None,
    most_usd: Annotated[float | None, Option(help="limit of dollars")] = None,
    most_kwh: Annotated[float | None, Option(help="limit of kilowatt-hours")] = None,
    out: Outputs = None,
) -> int:
    """Find batch, systems and micro-batch for the fewest days, dollars or kWh within limits.

    Keys that vary are those of machines.
    """
    start_s = time.perf_counter()
    tokens = tokens_of(budget, "--budget")
    goal = Goal(objective, most_days, most_usd, most_kwh)
    outputs = [check_output(path, pictures=False) for path in out or ()]
    space = Space(_batches(params, batch_size), parse_sweep(num_csx, "--num_csx"), _grid(over))
    log_to_terminal("WARNING")
    from waferstream.studies import search as searching  # noqa: PLC0415  (torch)

    data = load_yaml(cluster) if cluster else {}
    result = searching.search(params, data, space, goal, prices.request(tokens), start_s)
    for path in outputs:
        write_records(path, result.records)
    answer(result.records, search_text(result))
    print(*outputs, sep="\n", end="\n" if outputs else "", file=sys.stderr)
    return 0


def _grid(typed: Sequence[str] | None) -> Grid:
    """Return the grid of ``KEY=VALUES`` words; ConfigError for one that is none, or comes twice."""
    values: dict[str, str] = {}
    for word in typed or ():
        key, equals, text = word.partition("=")
        if not (key and equals):
            raise ConfigError(
                "a key that varies must have values",
                code="study-values-invalid",
                where="--over",
                value=word,
                rule="KEY=VALUES, as in num_csx=1-64:x2",
            )
        if key in values:
            raise ConfigError(
                "a key may vary once",
                code="duplicate-key",
                where="--over",
                value=key,
                remedy="give all its values in one list",
            )
        values[key] = text
    return Grid.parse(values)


def _batches(params: Path, typed: str | None) -> Sequence[int]:
    """Return the batches to choose from: those that are typed, else those around the stated one."""
    if typed is None:
        fit = load_params(params).trainer.fit
        return () if fit is None else batches_around(fit.train_dataloader.batch_size)
    values = Axis.parse("batch_size", typed).values
    ends = (values[0], values[-1]) if isinstance(values, range) else values
    if not all(type(value) is int and value > 0 for value in ends):
        raise ConfigError(
            "batches must be positive numbers of samples",
            code="out-of-range",
            where="--batch_size",
            value=typed,
            rule="whole numbers above 0, as in 64,128 or 64-1024:x2",
        )
    return cast("Sequence[int]", values)
