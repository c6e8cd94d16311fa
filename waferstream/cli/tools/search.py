"""``waferstream search``: batch, systems and micro-batch for the fewest days, dollars or kWh."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import cast

from waferstream.cli.frame.files import cluster_file
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.study import FILES, OUT, PRICES, grid_of, key_values, prices_of
from waferstream.config.phases import load_params
from waferstream.core.config import load_yaml
from waferstream.core.errors import ConfigError
from waferstream.core.units import parse_count
from waferstream.host.files import json_text
from waferstream.host.terminal import log_to_terminal
from waferstream.reports.economics import check_tokens
from waferstream.reports.records import write_records
from waferstream.scaling.sweep import SimulationRequest, parse_sweep
from waferstream.studies.candidates import UNITS, Goal, Space, batches_around
from waferstream.studies.grid import Axis
from waferstream.studies.result import check_output
from waferstream.studies.text import search_text


def _search(given: argparse.Namespace) -> int:
    """Search, print the best candidates, and write all of them where that is asked for."""
    start_s = time.perf_counter()
    check_tokens(given.budget, "--budget")
    goal = Goal(given.objective, given.most_days, given.most_usd, given.most_kwh)
    outputs = [check_output(path, pictures=False) for path in given.out or ()]
    space = Space(_batches(given), parse_sweep(given.num_csx, "--num_csx"), grid_of(given.over))
    log_to_terminal("WARNING")
    from waferstream.studies.search import search  # noqa: PLC0415  (torch)

    request = SimulationRequest(token_budget=given.budget, prices=prices_of(given))
    found = cluster_file(given.cluster)
    cluster = load_yaml(found) if found else {}
    result = search(given.params, cluster, space, goal, request, start_s)
    for path in outputs:
        write_records(path, result.records)
    print(json_text(result.records) if given.json else search_text(result))
    print(*outputs, sep="\n", end="\n" if outputs else "", file=sys.stderr)
    return 0


def _batches(given: argparse.Namespace) -> Sequence[int]:
    """Return the batches to choose from: those that are typed, else those around the stated one."""
    if given.batch_size is None:
        fit = load_params(given.params).trainer.fit
        return () if fit is None else batches_around(fit.train_dataloader.batch_size)
    values = Axis.parse("batch_size", given.batch_size).values
    ends = (values[0], values[-1]) if isinstance(values, range) else values
    if not all(type(value) is int and value > 0 for value in ends):
        raise ConfigError(
            "batches must be positive numbers of samples",
            code="out-of-range",
            where="--batch_size",
            value=given.batch_size,
            rule="whole numbers above 0, as in 64,128 or 64-1024:x2",
        )
    return cast("Sequence[int]", values)


COMMANDS = (
    Command(
        "",
        "find batch, systems and micro-batch for the fewest days, dollars or kWh within limits: "
        "waferstream search gpt2.yaml --budget 300B --objective cost --most_days 30",
        _search,
        (
            *FILES,
            argument("--budget", type=parse_count, required=True, help="tokens, as in 300B"),
            argument("--objective", choices=list(UNITS), default="days", help="what is least"),
            argument("--num_csx", default="1-64", help="systems to choose from (default: 1-64)"),
            argument(
                "--batch_size", help="batches to choose from (default: a quarter to 4 x the file's)"
            ),
            argument(
                "--over",
                action="append",
                type=key_values,
                metavar="KEY=VALUES",
                help="machines to choose from: system=CS-2,CS-3",
            ),
            argument("--most_days", type=float, help="limit of days"),
            argument("--most_usd", type=float, help="limit of dollars"),
            argument("--most_kwh", type=float, help="limit of kilowatt-hours"),
            *PRICES,
            OUT,
        ),
    ),
)
