"""``waferstream report``: what a run or a simulation found, and the page that shows it."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import tell
from waferstream.core.errors import ConfigError
from waferstream.core.outputs import check_folder
from waferstream.host.files import replacing
from waferstream.reports.run.kept import KeptRun, find_run, find_runs
from waferstream.reports.run.page import REPORT_NAME

_SIMULATION = Path("simulation", "simulation.html")
"""The page of a simulation in the folder of a model."""


@command("report", "model_dir --out report.html")
def report(
    run: Annotated[
        Path, Argument(help="folder of a run or of a model, or the beginning of a run's name")
    ] = Path("model_dir"),
    out: Annotated[Path | None, Option(help="copy the page to this file")] = None,
    browse: Annotated[bool, Option(help="open the page in the browser")] = False,
) -> int:
    """Show what the newest run of a folder found, and where its page is."""
    if out is not None:
        check_folder(out, "--out")
    simulated = run / _SIMULATION
    if simulated.is_file() and not find_runs([run]):
        facts, page = {}, simulated
    else:
        found = find_run(run)
        facts, page = found.figures(), _page_of(found)
    if out is not None:
        with replacing(out) as partial:
            shutil.copyfile(page, partial)
        page = out
    if browse:
        webbrowser.open(page.resolve().as_uri())
    known = {name.lower(): value for name, value in facts.items() if value}
    lines = [f"{name:<10}  {value}" for name, value in {**known, "page": page}.items()]
    return tell("\n".join(lines), **known, page=page)


def _page_of(run: KeptRun) -> Path:
    """Return the page of a run; ConfigError if it has none yet."""
    page = run.path / REPORT_NAME
    if not page.is_file():
        raise ConfigError(
            "a run must have ended to have a report",
            code="report-missing",
            where=str(page),
            value="no such file",
            remedy=f"its log says how far it is: {run.path / 'run.log'}",
        )
    return page
