"""``waferstream runs`` and ``report``: the runs that folders of models keep."""

from __future__ import annotations

import shutil
import webbrowser
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import prints_json, show, tell, tell_paths
from waferstream.core.errors import ConfigError
from waferstream.core.outputs import check_folder
from waferstream.host.files import replacing
from waferstream.reports.run.kept import PARAMS_NAME, KeptRun, find_run, find_runs
from waferstream.reports.run.page import REPORT_NAME
from waferstream.training.results.claim import claimed

_RUN = "folder of a run, the beginning of its name, or a model's folder for its newest run"
_SIMULATION = Path("simulation", "simulation.html")
"""The page of a simulation in the folder of a model."""


@command("runs list")
def list_runs(
    places: Annotated[
        list[Path] | None, Argument(help="folders to search (default: this one)")
    ] = None,
) -> int:
    """List the runs below folders, oldest first."""
    return show([run.row() for run in find_runs(places or [Path()])])


@command("runs show", "model_dir")
def show_run(run: Annotated[Path, Argument(help=_RUN)]) -> int:
    """Show a run: its figures, and where its files are; with --json its keys and curves, too."""
    found = find_run(run)
    if prints_json():
        summary = found.summary.to_json() if found.summary else None
        return tell("", run=str(found.path), summary=summary, keys=found.configuration())
    facts = {key.lower(): value for key, value in found.row().items() if value}
    files = {"report": REPORT_NAME, "log": "run.log", "keys": PARAMS_NAME}
    facts |= {what: str(found.path / file) for what, file in files.items()}
    return show([{"": key, found.name: value} for key, value in facts.items()])


@command("report", "model_dir --out report.html")
def report(
    run: Annotated[Path, Argument(help=_RUN)] = Path("model_dir"),
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


@command("runs compare", "model_dir other_dir --out losses.png")
def compare_runs(
    runs: Annotated[list[Path], Argument(help=f"two or more of: {_RUN}")],
    out: Annotated[Path | None, Option(help="picture of their losses, .png, .svg or .pdf")] = None,
) -> int:
    """Compare runs: their figures, and the keys in which they differ."""
    from waferstream.reports.run.comparison import compared, losses_picture  # noqa: PLC0415  (slow)

    found = [find_run(run) for run in runs]
    if len({run.path.resolve() for run in found}) < 2:
        raise ConfigError(
            "a comparison must have two runs",
            code="too-few-runs",
            where="waferstream runs compare",
            value=len(found),
            remedy="name another run; waferstream runs list shows them",
        )
    if out is not None:
        losses_picture(out, found)
    return show(compared(found))


@command("runs rm", "20261128_123702_514")
def remove_runs(
    runs: Annotated[list[str], Argument(help="folders or names of runs")],
    yes: Annotated[bool, Option(help="do not ask")] = False,
) -> int:
    """Remove runs: their folders with logs, events and reports. Checkpoints stay."""
    if "" in runs:  # a variable of a shell that is not set; a path would take it for this folder
        raise ConfigError(
            "a run must have a name",
            code="run-without-name",
            where="waferstream runs rm",
            value="",
            remedy="name a run; waferstream runs list shows them",
        )
    found = [find_run(Path(run)) for run in runs]
    if not yes and not _is_agreed(f"Remove {', '.join(run.name for run in found)}?"):
        return 1
    for run in found:
        with claimed(run.model_dir) if run.summary is None else nullcontext():
            run.remove()
    return tell_paths(*(run.path for run in found))


def _is_agreed(question: str) -> bool:
    with suppress(typer.Abort):  # nobody is there to answer
        return typer.confirm(question)
    return False
