"""``run_summary.json``: what a run did, in numbers that other programs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from timing.attribution import Attribution, StepTiming, samples_per_s
from timing.start_up import StartUp
from waferstream.reports.host import Host

SUMMARY_NAME = "run_summary.json"

Loss = tuple[int, float]
"""Step, mean loss of its batch."""

Evaluation = tuple[int, float, float]
"""Step, mean loss over the evaluation's batches, perplexity."""


@dataclass(frozen=True)
class ModelSummary:
    """The model's name and number of parameters."""

    name: str
    parameters: int


@dataclass(frozen=True)
class Measured:
    """The pace of training on the computers that did the arithmetic."""

    samples_per_s: float
    seconds: float
    host: Host


@dataclass(frozen=True)
class Emulated:
    """The pace of training on the emulated machine.

    ``step_ps`` is the mean length of a step; ``attribution_ps`` says by cause where ``total_ps``,
    the time of all steps together, went.
    """

    samples_per_s: float
    step_ps: int
    attribution_ps: Attribution
    total_ps: int

    def __post_init__(self) -> None:
        if self.attribution_ps.total_ps != self.total_ps:
            raise ValueError(
                f"steps take {self.total_ps} ps, "
                f"of which {self.attribution_ps.total_ps} are attributed"
            )

    @classmethod
    def of(cls, timings: Sequence[StepTiming]) -> Emulated:
        """Sum up at least one step; steps need not follow one upon the other."""
        total_ps = sum(timing.duration_ps for timing in timings)
        causes = (field.name for field in fields(Attribution))
        return cls(
            samples_per_s=samples_per_s(timings),
            step_ps=round(total_ps / len(timings)),
            attribution_ps=Attribution(
                **{cause: sum(getattr(t.attribution, cause) for t in timings) for cause in causes}
            ),
            total_ps=total_ps,
        )


@dataclass(frozen=True)
class RunSummary:
    """One run of ``run.py``. What did not happen is None or empty: a run may only evaluate or fail.

    ``train`` and ``eval`` are the curves; steps are inclusive and count from 1. ``start_up``
    is what the emulated machine would do before the first step.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    status: Literal["completed", "failed"]
    mode: str
    version: str
    num_csx: int
    system: str
    model: ModelSummary
    batch_size: int
    micro_batch_size: int | None
    first_step: int
    last_step: int
    train: tuple[Loss, ...] = ()
    eval: tuple[Evaluation, ...] = ()
    weights_sha256: str | None = None
    checkpoint: str | None = None
    measured: Measured | None = None
    emulated: Emulated | None = None
    start_up: StartUp | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data for ``write_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """From plain data; ValueError names every key that is wrong, missing or not known."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(RunSummary)
