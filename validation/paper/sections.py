"""Sections of the page that follow from rows, fits and ablations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from validation.ablations.ablation import Ablated, ablation_table
from validation.fit.evaluation import Evaluation
from validation.paper.evidence import Evidence
from validation.report.report import Report
from validation.report.rule import (
    LEAST_MODELS,
    LEAST_ROWS,
    MOST_CONSTANTS,
    broken,
    support_table,
)
from validation.report.summary import grouped, row_table, validated
from validation.report.tables import Table

_WORST = 12
_METHOD = """## Method

A prediction gets the configuration of a row without its results: model, sizes, batch, machine,
release. The step is captured from that model's code, planned on the wafer, and executed on the
emulated machine by the same schedule as a run (`ARCHITECTURE.md`); kernels, hosts and GPU clusters
have closed forms. The error of a prediction is predicted over published, less one. Means are of
absolute errors. Nothing is fitted per row or per model.

Constants are *published*, *derived*, *fitted* or *assumed*. A fitted one rests on {rows} rows of
{models} models at least, all marked calibration, and there are {most} at most; else it is assumed,
and its rows calibrate nothing. `python -m validation.fit` repeats every fit and refuses one with
more constants than its rows have models."""


def method() -> str:
    """Return how predictions, errors and constants come about."""
    return _METHOD.format(rows=LEAST_ROWS, models=LEAST_MODELS, most=MOST_CONSTANTS)


def splits(report: Report) -> Iterator[str]:
    """Yield the rows of each file by mark."""
    yield (
        "## Rows and splits\n\n"
        "Rows were marked before any constant was fitted. Constants are fitted to *calibration* "
        "rows, goals count *validation* rows, and *context* rows are too weak for a verdict. A "
        "calibration row on which no fitted constant rests counts as *unused*."
    )
    rows = report.predictions.rows
    compared = {one.row.row_id for one in report.predictions.compared}
    uses = ("calibration", "validation", "context")
    lines = [
        (
            Path(file).name,
            *(str(sum(row.use == use for row in own)) for use in uses),
            str(sum(row.row_id in compared for row in own)),
            str(len(own)),
        )
        for file, own in grouped(rows, lambda row: row.file).items()
    ]
    header = ("file", *uses, "compared", "rows")
    yield Table(header, lines, frozenset(range(1, len(header)))).markdown()


def fitted(evidence: Evidence) -> Iterator[str]:
    """Yield what every constant rests on, and the errors of every fit with models left out."""
    found = evidence.supports
    yield (
        "## Fitted constants, and models left out\n\n"
        f"{len(found)} constants are fitted, {MOST_CONSTANTS} at most may be. *Left out* is the "
        "error on the rows of a model with constants fitted to those of all other models."
    )
    yield support_table(found).markdown()
    yield "\n".join(f"- {complaint}" for complaint in broken(found)) or "All of them keep the rule."
    yield _left_out(evidence.evaluations).markdown()


def _left_out(evaluations: Sequence[Evaluation]) -> Table:
    lines = [
        (
            one.family,
            str(len(one.constants)),
            str(len(one.rows)),
            str(len(one.models)),
            one.mean,
            one.mean_left_out,
            one.worst_left_out,
        )
        for one in evaluations
    ]
    header = ("fit", "constants", "rows", "models", "error", "left out", "worst left out")
    return Table(header, lines, frozenset(range(1, len(header))))


def ablated(found: Sequence[Ablated]) -> Iterator[str]:
    """Yield the errors with and without each mechanism."""
    yield (
        "## Ablations\n\n"
        "Mean error of the validation rows of a family with a mechanism and without it. All other "
        "constants stay as they are."
    )
    yield ablation_table(found).markdown()


def failures(report: Report) -> Iterator[str]:
    """Yield the worst rows, those that are skipped, with the reason, and those that failed."""
    ordered = sorted(validated(report.predictions.compared), key=lambda one: -abs(one.error))
    yield f"## Failures\n\nThe {_WORST} worst validation rows:"
    yield row_table(ordered[:_WORST], report.intervals).markdown()
    groups = grouped(report.predictions.skipped, lambda one: (one.family or "none", one.reason))
    if groups:
        yield "Rows that are not predicted, with the reason:"
        rows = [
            (*key, ", ".join(one.row.row_id for one in skipped))
            for key, skipped in sorted(groups.items())
        ]
        yield Table(("family", "reason", "rows"), rows).markdown()
    if report.predictions.failed:
        yield "Rows whose prediction failed, by a bug:"
        lines = [
            (one.row.row_id, one.family or "none", one.bug.splitlines()[-1])
            for one in report.predictions.failed
        ]
        yield Table(("row", "family", "bug"), lines).markdown()
