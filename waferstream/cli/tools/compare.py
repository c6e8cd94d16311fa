"""``waferstream compare`` and ``tco``: what CS systems and GPUs cost for the same work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Cluster, Page, Params, machine_of, tokens_of
from waferstream.cli.frame.output import answer
from waferstream.core.config import load_yaml, validate
from waferstream.core.outputs import check_folder
from waferstream.host.files import write_text
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.reports.page import render
from waferstream.reports.tco.page import comparison_page
from waferstream.reports.tco.prices import Prices, with_price
from waferstream.reports.tco.resolution import load_comparison
from waferstream.reports.tco.sensitivity import Study
from waferstream.reports.tco.text import as_json, comparison_text
from waferstream.scaling.gpus import CLUSTERS
from waferstream.scaling.plan_request import PlanRequest, parse_asked


@command("compare", "params.yaml --system CS-3 --gpu h100,b200:64 --budget 300B --price CS-3=60EUR")
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
    page: Page = None,
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
    # torch takes seconds to import; wrong words are told before
    if page is not None:
        check_folder(page, "--page")
    from waferstream.config.phases import load_params  # noqa: PLC0415
    from waferstream.simulation.planning import plan  # noqa: PLC0415

    found = plan(load_params(params), request, machine_of(cluster))
    return _answer(found.costs, page, f"{found.headline}\n\n", f"\n\n{found.note}")


@command("tco", "project.yaml --page tco.html")
def compare_costs(
    file: Annotated[Path, Argument(help="project, people, site and machines, as YAML")],
    page: Page = None,
) -> int:
    """Compare what a project of training costs on several machines, and say which wins when.

    Set-up, people, hardware and energy, with a tornado of what decides, and a verdict.
    """
    return _answer(Study.of(load_comparison(file)), page)


def _answer(costs: Study, page: Path | None, before: str = "", after: str = "") -> int:
    """Write the page of a comparison, and print it, as text between two others; return 0."""
    if page is not None:
        write_text(page, render(comparison_page(costs)))
    return answer(as_json(costs), f"{before}{comparison_text(costs)}{after}")


def _prices(file: Path | None, currency: str | None, typed: Sequence[str]) -> Prices:
    """Return the prices of a file, if any, with those that were typed."""
    data = load_yaml(file) if file else {}
    if currency:
        data["currency"] = {"code": currency.upper()}
    prices = validate(Prices, data, str(file or "--currency"))
    machines = (*SYSTEMS, *CLUSTERS)
    each = (one for text in typed for one in text.split(","))
    return reduce(lambda so_far, one: with_price(so_far, one, "--price", machines), each, prices)
