"""What the page shows beside the report: fits with models left out, the rule, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.ablations.ablation import Ablated, ablate
from validation.ablations.registry import ABLATIONS
from validation.families.prediction import Family
from validation.fit.evaluation import Evaluation, evaluate_all
from validation.fit.registry import FITS
from validation.report.report import Report
from validation.report.rule import Support, house_supports


@dataclass(frozen=True)
class Evidence:
    """Evaluations of all fits, supports of all fitted constants, and all ablations."""

    evaluations: tuple[Evaluation, ...]
    supports: tuple[Support, ...]
    ablated: tuple[Ablated, ...]

    @classmethod
    def of(cls, report: Report, families: Sequence[Family]) -> Evidence:
        """Repeat the fits and the ablations; ConfigError as ``evaluate``."""
        return cls(
            tuple(evaluate_all(FITS, report.predictions.rows, families)),
            house_supports(),
            tuple(ablate(ABLATIONS, report.predictions.compared)),
        )
