"""The report as a Markdown page: results, picture, limits, every row, every constant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from validation.families.replays import Listed
from validation.fit.constants import Constant, constants
from validation.report.summary import grouped
from validation.report.tables import markdown
from validation.report.text import (
    GOAL_HEADER,
    RIGHT_OF_GOAL,
    RIGHT_OF_ROW,
    RIGHT_OF_SUMMARY,
    ROW_HEADER,
    SUMMARY_HEADER,
    Report,
    goal_cells,
    row_cells,
    summary_cells,
)
from wsc.core.errors import ConfigError
from wsc.core.files import replacing


def write_document(path: Path, report: Report, notes: Path, picture: Path | None) -> None:
    """Write the page; ``notes`` is a hand-written file that becomes its chapter on limits.

    Raises ConfigError if the notes cannot be read.
    """
    try:
        limits = notes.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            "the notes cannot be read", where=str(notes), value=error.strerror
        ) from error
    link = None if picture is None else os.path.relpath(picture, path.parent)
    text = "\n\n".join(_chapters(report, limits, link))
    with replacing(path) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")


def _chapters(report: Report, limits: str, picture: str | None) -> Iterator[str]:
    yield "# Fidelity: predicted against published"
    yield _introduction(report)
    if picture is not None:
        yield f"![Predicted against published]({picture})"
    yield "## Goals\n\nOn validation rows, which no constant was fitted to."
    yield markdown(GOAL_HEADER, goal_cells(report.goals), RIGHT_OF_GOAL)
    yield "## Errors per family, evidence and use\n\nAbsolute, relative to what is published."
    yield markdown(SUMMARY_HEADER, summary_cells(report.summaries), RIGHT_OF_SUMMARY)
    yield limits
    yield from _not_compared(report)
    yield "## Every row compared"
    for family, compared in report.by_family.items():
        yield f"### {family}"
        yield markdown(ROW_HEADER, row_cells(compared), RIGHT_OF_ROW)
    yield from _all_constants()


def _introduction(report: Report) -> str:
    files = ", ".join(f"{source.name} ({source.rows} rows)" for source in report.sources)
    names = " ".join(source.name for source in report.sources)
    replays = report.replays
    return (
        "This page is generated, its chapter on limits apart:\n\n"
        "```\n"
        f"python -m validation --rows {names} \\\n"
        "    --markdown docs/fidelity.md --picture docs/fidelity.png\n"
        "```\n\n"
        f"Reference rows: {files}. {len(replays.compared)} are compared, {len(replays.listed)} "
        f"cannot be and are listed with the reason, {len(replays.failed)} failed. A prediction "
        "sees what was run, never what was measured; the error is predicted over published, "
        "less one. *Calibration* rows may be fitted, *validation* rows are never, *context* rows "
        "are too weak for a verdict.\n\n"
        f"Commit {report.commit}; {report.host.cpu}, Python {report.host.python}."
    )


def _not_compared(report: Report) -> Iterator[str]:
    groups = grouped(report.replays.listed, lambda one: (one.family or "none", one.reason))
    if groups:
        yield "## Rows not compared"
        rows = [(*key, _ids(listed)) for key, listed in sorted(groups.items())]
        yield markdown(("family", "reason", "rows"), rows)
    if report.replays.failed:
        yield "## Rows on which a replay broke"
        failures = [
            (one.row.row_id, one.family or "none", one.bug.splitlines()[-1])
            for one in report.replays.failed
        ]
        yield markdown(("row", "family", "bug"), failures)


def _ids(listed: Sequence[Listed]) -> str:
    return ", ".join(one.row.row_id for one in listed)


def _all_constants() -> Iterator[str]:
    yield (
        "## Every constant\n\n"
        "*Published*: printed by the vendor or measured by others; *derived*: arithmetic on "
        "published numbers; *fitted*: chosen to meet calibration rows; *assumed*: a plausible "
        "value that is published nowhere. Those of the cluster can be changed in cluster.yaml."
    )
    for holder, members in grouped(constants(), lambda one: (one.holder, one.title)).items():
        yield f"### {holder[0]}\n\n{holder[1]}."
        yield markdown(("constant", "value", "status", "source"), [_cells(one) for one in members])


def _cells(constant: Constant) -> tuple[str, ...]:
    return f"`{constant.name}`", constant.shown, constant.status, constant.source
