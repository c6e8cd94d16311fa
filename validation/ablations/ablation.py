"""Compare the errors of validation rows with those of a model that lacks one mechanism.

All other constants stay as they are, so an ablation shows what a prediction owes to a mechanism,
not how well a model without it could be fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from validation.families.prediction import Compared, Family, Predictions
from validation.report.summary import Errors, belongs, grouped, validated
from validation.report.tables import Table, percent
from validation.rows.row import Row


@dataclass(frozen=True)
class Ablation:
    """A mechanism, and the predictions of the same model without it."""

    mechanism: str
    without: str
    """What the model does instead."""
    families: str
    """First word or words of the names of the families that it concerns."""
    predict: Callable[[Row], float]
    """Predict a described row without the mechanism, in the unit of the row."""


@dataclass(frozen=True)
class Ablated:
    """Errors of the validation rows of one family with and without a mechanism."""

    ablation: Ablation
    family: str
    complete: Errors
    without: Errors


def ablate(ablations: Iterable[Ablation], compared: Sequence[Compared]) -> Iterator[Ablated]:
    """Yield the errors of every family with validation rows on which an ablation has an effect."""
    for ablation in ablations:
        for name, own in grouped(validated(compared), lambda one: one.family).items():
            if belongs(name, ablation.families):
                family = Family(name, lambda _: True, ablation.predict)
                changed = Predictions.of([one.row for one in own], [family]).compared
                kept = {one.row.row_id: one.predicted for one in changed}
                same = [one for one in own if one.row.row_id in kept]
                if any(one.predicted != kept[one.row.row_id] for one in same):
                    yield Ablated(ablation, name, Errors.of(same), Errors.of(changed))


def ablation_table(found: Iterable[Ablated]) -> Table:
    """Return a table with one line for each mechanism and family."""
    lines = [
        (
            one.ablation.mechanism,
            one.ablation.without,
            one.family,
            str(one.complete.count),
            percent(one.complete.mean),
            percent(one.without.mean),
            percent(one.without.max),
        )
        for one in found
    ]
    header = ("mechanism", "without it", "family", "rows", "error", "without", "worst without")
    return Table(header, lines, frozenset({3, 4, 5, 6}))
