"""``waferstream study``: a grid over any keys, as a table, as data and as a picture for a paper."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Literal

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.files import Cluster, Params, cluster_file
from waferstream.cli.frame.output import prints_json
from waferstream.cli.tools.asked import Outputs, Over, Prices, grid_of, tokens_of
from waferstream.host.files import json_text
from waferstream.host.terminal import line_width, log_to_terminal
from waferstream.scaling.sweep import SimulationRequest
from waferstream.studies.result import check_output
from waferstream.studies.text import study_text, told


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
    grid = grid_of(over)
    outputs = [check_output(path) for path in out or ()]
    tokens = None if token_budget is None else tokens_of(token_budget, "--token_budget")
    print(told(grid), file=sys.stderr, flush=True)
    if tell:
        return 0
    log_to_terminal("WARNING")
    from waferstream.studies.running import run_study  # noqa: PLC0415  (torch)

    request = SimulationRequest(token_budget=tokens, prices=prices.spec)
    result = run_study(params, grid, cluster_file(cluster), request, start_s)
    for path in outputs:
        result.write(path, width)
    if prints_json():
        print(json_text({"study": result.origin, "rows": result.records}))
    else:
        print("\n".join([study_text(result, line_width()), *map(str, outputs)]))
    return 0 if result.is_possible else 1
