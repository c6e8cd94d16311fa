"""``waferstream search``: batch, systems and micro-batch for the fewest days, dollars or kWh."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.files import Cluster, Params, cluster_file
from waferstream.cli.frame.output import prints_json
from waferstream.cli.tools.asked import Outputs, Over, Prices, grid_of, tokens_of
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.terminal import log_to_terminal
from waferstream.reports.records import write_records
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.studies.candidates import Goal, Objective, Space, batches_around
from waferstream.studies.grid import Axis
from waferstream.studies.result import check_output
from waferstream.studies.text import search_text


@command(
    "search",
    "params.yaml --budget 300B --objective cost --most_days 30 --over system=CS-2,CS-3",
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
    batches = _batches(params, batch_size)
    space = Space(batches, parse_sweep(num_csx, "--num_csx"), grid_of(over))
    log_to_terminal("WARNING")
    from waferstream.studies import search as searching  # noqa: PLC0415  (torch)

    request = SimulationRequest(token_budget=tokens, prices=prices.spec)
    found = cluster_file(cluster)
    data = load_yaml(found) if found else {}
    result = searching.search(params, data, space, goal, request, start_s)
    for path in outputs:
        write_records(path, result.records)
    print(json_text(result.records) if prints_json() else search_text(result))
    print(*outputs, sep="\n", end="\n" if outputs else "", file=sys.stderr)
    return 0


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
