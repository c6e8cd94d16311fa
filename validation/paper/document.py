"""Write the report as a Markdown page, and its error table into another page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from validation.paper.evidence import Evidence
from validation.paper.sections import ablated, failures, fitted, method, splits
from validation.report.constants import Constant, constants
from validation.report.intervals import coverage_table
from validation.report.report import Report
from validation.report.summary import goal_table, grouped, row_table, summary_table
from validation.report.tables import Table
from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing

TABLE_BEGIN = "<!-- fidelity table -->"
TABLE_END = "<!-- end -->"


def write_document(
    path: Path, report: Report, evidence: Evidence, notes: Path, picture: Path | None
) -> None:
    """Write the page of the report, and beside it a file of all rows (``rows_beside``).

    Args:
        path: The page.
        report: The report.
        evidence: Fits and ablations.
        notes: Hand-written Markdown that becomes the chapter on limits.
        picture: Picture to link, or None.

    Raises:
        ConfigError: The notes cannot be read.
    """
    limits = _read(notes).strip()
    link = None if picture is None else os.path.relpath(picture, path.parent)
    rows = rows_beside(path)
    text = "\n\n".join(_chapters(report, evidence, limits, link, rows.name))
    with replacing(path) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")
    with replacing(rows) as partial:
        partial.write_text(_every_row(report).csv(), encoding="utf-8")


def rows_beside(page: Path) -> Path:
    """Return the file of all compared rows that belongs to a page."""
    return page.with_name(f"{page.stem}_rows.csv")


def write_error_table(path: Path, report: Report) -> None:
    """Replace the error table between the markers ``TABLE_BEGIN`` and ``TABLE_END`` of a page.

    The new table has the families of the old one and goals that are missed, or all if the old one
    names none of the report's.

    Raises ConfigError if the page cannot be read or lacks a marker.
    """
    text = _read(path)
    before, begin, rest = text.partition(TABLE_BEGIN)
    old, end, after = rest.partition(TABLE_END)
    if not (begin and end):
        raise ConfigError(
            "the page must contain both markers of the error table",
            code="marker-missing",
            where=str(path),
            rule=f"a line {TABLE_BEGIN} and, below it, a line {TABLE_END}",
        )
    full = report.error_table
    known = [row for row in full.rows if f"\n| {row[0]} |" in old]
    rows = [row for row in full.rows if row in known or row[-1].endswith("missed")] if known else []
    with replacing(path) as partial:
        table = _marked(replace(full, rows=rows or full.rows))
        partial.write_text(f"{before}{table}{after}", encoding="utf-8")


def _marked(table: Table) -> str:
    return f"{TABLE_BEGIN}\n{table.markdown()}\n{TABLE_END}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "the page cannot be read",
            code="file-not-readable",
            where=str(path),
            value=error.strerror,
        ) from error


def _chapters(
    report: Report, evidence: Evidence, limits: str, picture: str | None, rows: str
) -> Iterator[str]:
    yield "# Fidelity: predicted against published"
    yield _introduction(report)
    if picture is not None:
        yield f"![Predicted against published]({picture})"
    yield method()
    yield from splits(report)
    yield "## Goals\n\nOn validation rows, to which no constant was fitted."
    yield goal_table(report.goals).markdown()
    yield "## Errors on validation rows, per family\n\nAbsolute, relative to the published value."
    yield _marked(report.error_table)
    yield from _intervals(report)
    yield from fitted(evidence)
    yield from ablated(evidence.ablated)
    yield from failures(report)
    yield limits
    yield "## Errors per family, evidence and use\n\nAbsolute, relative to the published value."
    yield summary_table(report.summaries).markdown()
    yield (
        f"## Every row compared\n\n[{rows}]({rows}) has each row with its prediction, its error "
        "and both intervals."
    )
    yield from _all_constants()


def _every_row(report: Report) -> Table:
    """Return the rows of all families, the family first."""
    empty = row_table([], report.intervals)
    lines = [
        (family, *line)
        for family, compared in report.by_family.items()
        for line in row_table(compared, report.intervals).rows
    ]
    return Table(("family", *empty.header), lines, frozenset(one + 1 for one in empty.right))


def _intervals(report: Report) -> Iterator[str]:
    yield (
        "## Intervals\n\n"
        "How many validation rows lie in the interval of their prediction. It is a factor either "
        "way, the same that simulations and runs state. It follows from the errors on other "
        "models: the scale of the family, times one plus the decades to the nearest calibrated "
        "row in shape, batch and machine, times a quantile of all errors in that unit "
        "(`waferstream/machine/intervals`). `python -m validation --residuals` writes the errors "
        "anew when a constant has changed."
    )
    yield coverage_table(report.judged).markdown()


def _introduction(report: Report) -> str:
    predictions = report.predictions
    return (
        "How far to trust the emulated clock: look up the family of what you predict under "
        "[Goals](#goals) and in the table below it, then the [limits of the model]"
        "(#known-limits-of-the-model). The rest is the evidence. The page is generated, except its "
        "chapter on limits:\n\n"
        "```bash\n"
        "python -m validation --markdown docs/fidelity.md --picture docs/fidelity.png \\\n"
        "    --readme README.md\n"
        "```\n\n"
        f"{len(predictions.compared)} published rows are compared, {len(predictions.skipped)} are "
        f"skipped with the reason and {len(predictions.failed)} failed.\n\n"
        f"Commit {report.commit}; {report.host.cpu}, Python {report.host.python}."
    )


def _all_constants() -> Iterator[str]:
    yield (
        "## Every constant\n\n"
        "*Published*: printed by the vendor or measured by others; *derived*: arithmetic on "
        "published numbers; *fitted*: chosen to match calibration rows; *assumed*: a plausible "
        "value without publication. Constants of the cluster can be changed in cluster.yaml."
    )
    for holder, members in grouped(constants(), lambda one: (one.holder, one.title)).items():
        yield f"### {holder[0]}\n\n{holder[1]}."
        lines = [_constant_line(one) for one in members]
        yield Table(("constant", "value", "status", "source"), lines).markdown()


def _constant_line(constant: Constant) -> tuple[str, ...]:
    return f"`{constant.name}`", constant.shown, constant.status, constant.source
