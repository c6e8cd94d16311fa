"""Who is told how a run goes: progress lines, event files, the history for picture and summary.

Observers look on; nothing they do changes a weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wsc.timing.attribution import StepTiming


@dataclass(frozen=True)
class TrainingLog:
    """The state of training at a log step; ``losses`` are those since the last log step."""

    step: int
    losses: tuple[tuple[int, float], ...]
    gradient_norm: float | None
    learning_rate: float | None
    rate: float  # samples/s, measured, smoothed
    global_rate: float
    emulated_rate: float
    timings: tuple[StepTiming, ...]
    steps_left_in_stage: int
    steps_left: int


@dataclass(frozen=True)
class EvaluationLog:
    """A finished evaluation: mean loss over its batches, and what it took."""

    step: int
    batches: int
    samples: int
    loss: float
    perplexity: float
    rate: float
    seconds: float


class Observer(Protocol):
    """Called in the order of events; all methods must be quick."""

    def trained(self, log: TrainingLog) -> None:
        """A log step of training is done."""

    def evaluated(self, log: EvaluationLog) -> None:
        """An evaluation is done."""

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint was written."""

    def close(self) -> None:
        """The run is over, well or not."""
