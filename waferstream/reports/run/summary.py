"""Summary of a run, written as ``run_summary.json`` for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from csnode.engine.spec import LayerRegion
from waferstream.machine.attribution import Attribution, TimedSteps
from waferstream.machine.energy import EnergyUse
from waferstream.machine.intervals import AnyInterval
from waferstream.machine.program_report import ProgramReport
from waferstream.machine.start_up import StartUp
from waferstream.reports.host import Host
from waferstream.workload.packing import Packing

SUMMARY_NAME = "run_summary.json"

Loss = tuple[int, float]
"""Step, mean loss of its batch."""

Evaluation = tuple[int, float, Mapping[str, float]]
"""Step, mean loss over the evaluation's batches, metrics of the model by name."""


Rates = tuple[int, float, float]
"""Step, samples/s measured since the last log step (smoothed), samples/s emulated, 0 if none."""


@dataclass(frozen=True)
class ModelSummary:
    """Name and number of parameters of a model."""

    name: str
    parameters: int


@dataclass(frozen=True)
class Measured:
    """Training throughput measured on the host."""

    samples_per_s: float
    seconds: float
    host: Host


@dataclass(frozen=True)
class Emulated:
    """Training throughput on the emulated machine.

    ``step_ps`` is the mean duration of a step; ``attribution_ps`` splits ``total_ps``, the duration
    of all steps, by cause.
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
    def of(cls, timed: TimedSteps) -> Emulated:
        """Summarise one or more steps, which need not be consecutive."""
        total_ps = timed.attribution.total_ps
        step_ps = round(total_ps / timed.num_steps)
        return cls(timed.samples_per_s, step_ps, timed.attribution, total_ps)


@dataclass(frozen=True)
class RunSummary:
    """One run of ``run.py``; fields of parts that did not happen are None or empty.

    ``train`` and ``eval`` are curves of losses, ``rates`` of throughput. Steps count from 1;
    ``last_step`` is included. ``interval`` is that of the emulated samples/s, ``energy``
    that of the emulated steps, ``start_up`` the time of the emulated machine before the first step;
    ``stragglers`` has the systems that were slow in real time, each with the steps;
    ``link_waits`` has the links between hosts, each with the seconds for which roles waited for it;
    ``programs`` has what was compiled or validated where nothing was executed;
    ``regions`` has the PEs that computed each layer, where ``runtime.engine`` names the wafer;
    ``packing`` says how full the sequences of the training are.
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
    rates: tuple[Rates, ...] = ()
    weights_sha256: str | None = None
    checkpoint: str | None = None
    measured: Measured | None = None
    emulated: Emulated | None = None
    interval: AnyInterval | None = None
    energy: EnergyUse | None = None
    start_up: StartUp | None = None
    stragglers: Mapping[str, int] = field(default_factory=dict)
    link_waits: Mapping[str, float] = field(default_factory=dict)
    programs: tuple[ProgramReport, ...] = ()
    regions: tuple[LayerRegion, ...] = ()
    packing: Packing | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """Restore a summary; ValueError names every key that is wrong, missing or unknown."""
        return _adapter().validate_python(data)


@cache
def _adapter() -> TypeAdapter[RunSummary]:
    """Return what reads summaries; to make it takes longer than to read one."""
    return TypeAdapter(RunSummary)
