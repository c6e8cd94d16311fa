"""What happens in the life of a run, as its log says it.

An event is logged as it is, ``log.info(event)``: a handler finds it as ``record.msg``, and its text
is the line, where it can be in the words of the vendor's client. Who reads the output of another
process finds an event by its text, or by the pattern of its class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from waferstream.core.units import format_rate


class Milestone(StrEnum):
    """What a run begins, or has done."""

    COMPILING = "Compiling the model. This may take a few minutes."
    STARTING = "Waiting for job ingress readiness."
    STARTED = "Poll ingress success: Job ingress ready"
    RUNNING = "Beginning appliance run"
    TRAINED = "Training completed successfully!"
    EVALUATED = "Evaluation completed successfully!"


@dataclass(frozen=True)
class StepCompiled:
    """A step has been compiled, or found, for micro-batches of a size."""

    micro_batch_size: int

    TEXT: ClassVar = "Compile was successful!"

    def __str__(self) -> str:
        return self.TEXT


@dataclass(frozen=True)
class RolesAwaited:
    """A cluster starts, and so many roles of a kind are to run."""

    kind: Literal["Weight", "Worker", "Activation"]
    count: int

    def __str__(self) -> str:
        waiting = f"Waiting for all {self.kind} pods to be running"
        return f"Poll ingress status: {waiting}, current running: 0/{self.count}."


@dataclass(frozen=True)
class TrainProgress:
    """A training after a step, in the format of Model Zoo 2.10, ``trainer/loggers/progress.py``.

    Rates below 1 have three significant digits; ``TimeRemaining>`` marks a lower bound.

    Attributes:
        step: Number of the step.
        loss: Its loss.
        rate: Measured throughput in samples per second, smoothed.
        global_rate: Measured throughput of the whole run so far.
        loop_remaining_s: Estimated time left in this loop.
        remaining_s: Estimated time left in the run.
        emulated_rate: Throughput of the emulated machine, in samples per second; None on another
            device, where nothing is emulated.
        machine: Its name, such as ``4 x CS-2``.
        remaining_is_bound: Whether stages without an estimate are missing in ``remaining_s``.
        device: The kind of device.
    """

    step: int
    loss: float
    rate: float
    global_rate: float
    loop_remaining_s: float
    remaining_s: float
    emulated_rate: float | None
    machine: str
    remaining_is_bound: bool = False
    device: str = "CSX"

    PATTERN: ClassVar = re.compile(r"\| Train .*\bStep=(?P<step>\d+), Loss=(?P<loss>[^,]+)")

    def __str__(self) -> str:
        relation = ">" if self.remaining_is_bound else "="
        line = (
            f"| Train Device={self.device}, Step={self.step}, Loss={self.loss:.5f}, "
            f"{_rates(self.rate, self.global_rate)}, "
            f"LoopTimeRemaining={_duration(self.loop_remaining_s)}, "
            f"TimeRemaining{relation}{_duration(self.remaining_s)}"
        )
        if not self.emulated_rate:
            return line
        return f"{line}, EmulatedRate={_rate(self.emulated_rate)} ({self.machine})"

    @property
    def plain(self) -> str:
        """The line in plain words, of at most 80 characters."""
        digits = 5 if abs(self.loss) < 10 else 4
        parts = [
            f"step {self.step:,}",
            f"loss {self.loss:.{digits}f}",
            f"{format_rate(self.rate)} samples/s",
        ]
        if self.emulated_rate:
            parts.append(f"emulated {format_rate(self.emulated_rate)}/s")
        return "  ".join([*parts, f"{_duration(self.remaining_s)} left"])


@dataclass(frozen=True)
class EvalProgress:
    """An evaluation after so many batches, in the vendor's format, too."""

    global_step: int
    batch: int
    loss: float
    rate: float
    global_rate: float
    device: str = "CSX"
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"| Eval Device={self.device}, GlobalStep={self.global_step}, Batch={self.batch}, "
            f"Loss={self.loss:.5f}, {_rates(self.rate, self.global_rate)}"
        )

    @property
    def plain(self) -> str:
        """The line in plain words."""
        named = {"loss": self.loss, **self.metrics}
        values = (f"{name.removeprefix('eval/')} {value:.5f}" for name, value in named.items())
        return f"step {self.global_step:,}  evaluation: {'  '.join(values)}"


@dataclass(frozen=True)
class Duration:
    """Seconds in all, and of each part by name."""

    total_s: float
    parts: Mapping[str, float]

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self.parts.items())
        return f"{self.total_s:.1f} s ({parts})"


@dataclass(frozen=True)
class RecoveryDecided:
    """What a cluster does after a failure; ``lost`` are the roles that it has lost."""

    what: str
    lost: tuple[str, ...]
    action: str
    why: str

    def __str__(self) -> str:
        return f"Recovery: {self.what}: {self.action}, {self.why}"


@dataclass(frozen=True)
class Recovered:
    """A cluster is whole again; a job that was interrupted goes on with ``step``."""

    duration: Duration
    step: int | None

    PATTERN: ClassVar = re.compile(r"Recovery: recovered in .*; step (?P<step>\d+) runs again")

    def __str__(self) -> str:
        again = "" if self.step is None else f"; step {self.step} runs again"
        return f"Recovery: recovered in {self.duration}{again}"


@dataclass(frozen=True)
class SystemsReturned:
    """A cluster has systems again that had failed and rested."""

    num_csx: int
    step: int

    def __str__(self) -> str:
        return f"Recovery: {self.num_csx} systems again from step {self.step} on"


RecoveryEvent = RecoveryDecided | Recovered | SystemsReturned


@dataclass(frozen=True)
class ClusterReplaced:
    """Another cluster has followed a lost one, from the checkpoint of ``step`` on."""

    duration: Duration
    num_commands: int
    step: int
    going_on_with: str

    PATTERN: ClassVar = re.compile(
        r"commands since step (?P<step>\d+) were repeated; "
        r"going on with: Run train steps (?P<first>\d+) to"
    )

    def __str__(self) -> str:
        return (
            f"Recovered in {self.duration}: {self.num_commands} commands since step {self.step} "
            f"were repeated; going on with: {self.going_on_with}"
        )


def _rates(rate: float, global_rate: float) -> str:
    return f"Rate={_rate(rate)}, GlobalRate={_rate(global_rate)}"


def _rate(samples_per_s: float) -> str:
    digits = f"{samples_per_s:.2f}" if samples_per_s >= 1 else f"{samples_per_s:.3g}"
    return f"{digits} samples/sec"


def _duration(duration_s: float) -> str:
    """Return hours, minutes and seconds, ``1:20:41``; hours may exceed a day."""
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
