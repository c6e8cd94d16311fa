"""The report of a check: a line for every step, and why values are close or different."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cstorch.referee.origin import Origin
from cstorch.referee.rounds import Rounds
from cstorch.referee.verdict import LIMIT, Outcome, Verdict, first_different
from waferstream.core.errors import CheckError
from waferstream.core.units import counted


@dataclass(frozen=True)
class Report:
    """What a check has found."""

    verdicts: tuple[Verdict, ...]
    rounds: Rounds
    origin: Origin | None = None
    """Where the first different step begins to differ; None if none does."""

    @property
    def outcome(self) -> Outcome:
        """That of the worst step."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        order: tuple[Outcome, ...] = ("different", "close", "equal")
        return next((each for each in order if each in outcomes), "equal")

    def fields(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "outcome": self.outcome,
            "num_micro_batches": self.rounds.cut.num_micro_batches,
            "steps": [verdict.fields() for verdict in self.verdicts],
            "origin": None if self.origin is None else asdict(self.origin),
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield f"Check of {counted(len(self.verdicts), 'step')} beside a plain PyTorch loop:"
        yield from map(str, self.verdicts)
        if self.outcome == "close":
            yield f"close: {self._why()}; anything beyond {LIMIT} times rounding is different"
        if self.origin is not None:
            yield f"where: {self.origin.where}"
            yield f"remedy: {self.origin.remedy}"

    def _why(self) -> str:
        """Return why values may differ by their rounding."""
        cut, stream = self.rounds.cut, self.rounds.precision.stream
        causes = ["fused kernels round in another order"]
        if cut.num_micro_batches > 1:
            causes.insert(0, f"{cut.num_micro_batches} micro-batches are added, not one batch")
        if stream != "float32":
            causes.insert(0, f"values are {stream}")
        return ", ".join(causes)

    def require_alike(self) -> None:
        """Raise CheckError if a step is different."""
        worst = first_different(self.verdicts)
        if worst is not None:
            raise CheckError(
                f"step {worst.step} computes other values than plain PyTorch",
                code="unlike-plain-pytorch",
                where=self.origin.where if self.origin else None,
                value=str(worst),
                rule=f"at most {LIMIT} times what rounding alone does",
                remedy=self.origin.remedy if self.origin else None,
            )
