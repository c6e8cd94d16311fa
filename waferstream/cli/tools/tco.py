"""``waferstream tco``: what a project costs on several machines, and which of them wins when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import prints_json
from waferstream.host.files import json_text, replacing
from waferstream.reports.page import render
from waferstream.reports.tco.page import comparison_page
from waferstream.reports.tco.resolution import load_comparison
from waferstream.reports.tco.sensitivity import Study
from waferstream.reports.tco.text import as_json, comparison_text


@command("tco", "project.yaml --page tco.html")
def compare_costs(
    file: Annotated[Path, Argument(help="project, people, site and machines, as YAML")],
    page: Annotated[
        Path | None, Option(help="file of the page to write, with the tornado drawn")
    ] = None,
) -> int:
    """Compare what a project of training costs on several machines, and say which wins when.

    Set-up, people, hardware and energy, with a tornado of what decides, and a verdict.
    """
    study = Study.of(load_comparison(file))
    if page is not None:
        with replacing(page) as partial:
            partial.write_text(render(comparison_page(study)), encoding="utf-8")
    print(json_text(as_json(study)) if prints_json() else comparison_text(study))
    return 0
