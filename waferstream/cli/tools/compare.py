"""``waferstream compare``: CS systems or GPUs for a model and a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.files import Cluster, Params, cluster_file
from waferstream.cli.frame.output import prints_json
from waferstream.cli.tools.asked import tokens_of
from waferstream.core.config import load_yaml, validate
from waferstream.core.outputs import check_folder
from waferstream.host.files import json_text, replacing
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.reports.page import render
from waferstream.reports.tco.page import comparison_page
from waferstream.reports.tco.prices import Prices, with_price
from waferstream.reports.tco.text import as_json, comparison_text
from waferstream.scaling.gpus import CLUSTERS
from waferstream.scaling.plan_request import PlanRequest, parse_asked


@command(
    "compare",
    "params.yaml --system CS-3 --gpu h100,b200:64 --budget 300B --price CS-3=60EUR",
)
def compare(
    params: Params,
    budget: Annotated[str, Option(help="tokens of a training, such as 300B")],
    system: Annotated[str, Option(help="CS-2 or CS-3, or both: CS-2:8,CS-3:4")] = "CS-3",
    gpu: Annotated[
        str,
        Option(
            help="A100, H100, H200, B200, several with commas; with a count, H100:64, or as many "
            "as are as fast as the first systems"
        ),
    ] = "H100",
    runs: Annotated[int, Option(min=1, help="trainings of the project")] = 1,
    compiled: Annotated[bool, Option(help="GPUs run with torch.compile")] = False,
    price: Annotated[
        list[str] | None,
        Option(help="of an hour of a machine, of a kwh, of an hour of a person: H100=2.5EUR"),
    ] = None,
    currency: Annotated[str | None, Option(help="of the sums that are printed")] = None,
    prices: Annotated[
        Path | None, Option(help="assumptions as YAML: people, site, currency, machines")
    ] = None,
    cluster: Cluster = None,
    page: Annotated[Path | None, Option(help="file of the page to write, with a tornado")] = None,
) -> int:
    """Compare CS systems with GPUs: days, MWh, CO2e and money of a budget, and the break-even."""
    request = PlanRequest(
        parse_asked(system, SYSTEMS, "--system"),
        parse_asked(gpu, CLUSTERS, "--gpu"),
        tokens_of(budget, "--budget"),
        runs,
        compiled,
        _prices(prices, currency, price or ()),
    )
    if page is not None:
        check_folder(page, "--page")
    # torch takes seconds to import; wrong words are told before
    from appliance.spec import ClusterSpec, load_cluster  # noqa: PLC0415
    from waferstream.config.phases import load_params  # noqa: PLC0415
    from waferstream.simulation.planning import plan  # noqa: PLC0415

    machine = cluster_file(cluster)
    found = plan(load_params(params), request, load_cluster(machine) if machine else ClusterSpec())
    if page is not None:
        with replacing(page) as partial:
            partial.write_text(render(comparison_page(found.costs)), encoding="utf-8")
    text = f"{found.headline}\n\n{comparison_text(found.costs)}\n\n{found.note}"
    print(json_text(as_json(found.costs)) if prints_json() else text)
    return 0


def _prices(file: Path | None, currency: str | None, typed: Sequence[str]) -> Prices:
    """Return the prices of a file, if any, with those that were typed."""
    data = load_yaml(file) if file else {}
    if currency:
        data["currency"] = {"code": currency.upper()}
    prices = validate(Prices, data, str(file or "--currency"))
    machines = (*SYSTEMS, *CLUSTERS)
    each = (one for text in typed for one in text.split(","))
    return reduce(lambda so_far, one: with_price(so_far, one, "--price", machines), each, prices)
