"""What a management and its running workflows tell of themselves in numbers, as plain data.

A workflow sends samples with its progress; the management has its own, and ``door.metrics`` shows
all of them to Prometheus. A new number is a row of one of the two tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from waferstream.core.config import Config

MOST_SAMPLES = 10_000
"""Samples of one report: those of 192 systems, their switches and servers."""


@dataclass(frozen=True)
class Metric:
    """The meaning of a number, the names of its labels, and whether it only rises."""

    meaning: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


MANAGEMENT_METRICS: Mapping[str, Metric] = {
    "queued_workflows": Metric("Workflows that wait for systems.", ("priority",)),
    "running_workflows": Metric("Workflows that run.", ("priority",)),
    "longest_wait_seconds": Metric("Longest time for which a queued workflow has waited."),
    "systems": Metric("Systems of the inventory.", ("state",)),
    "groups": Metric("MemoryX groups of the inventory.", ("state",)),
    "system_busy": Metric("1 while a system belongs to a workflow, else 0.", ("system",)),
    "decisions_total": Metric("Decisions of the schedule.", kind="counter"),
    "decision_seconds": Metric(
        "Time of this host that the newest decisions took, by quantile.", ("quantile",)
    ),
    "events_total": Metric("Events that have happened.", kind="counter"),
    "expected_start_error_seconds": Metric(
        "Mean distance of expected from real starts, of the workflows that started last."
    ),
    "expected_start_inside_ratio": Metric(
        "Share of real starts inside of the expected interval, of the workflows that started last."
    ),
}
"""Numbers of the management by name."""

WORKFLOW_METRICS: Mapping[str, Metric] = {
    "step": Metric("The newest step that is done."),
    "last_step": Metric("The step with which training ends."),
    "loss": Metric("The newest loss."),
    "measured_samples_per_second": Metric("Throughput on the host."),
    "emulated_samples_per_second": Metric("Throughput on the emulated machine."),
    "energy_joules_total": Metric("Energy of the emulated systems.", kind="counter"),
    "iteration_seconds": Metric("Emulated time of a step.", ("role",)),
    "cross_iteration_seconds": Metric(
        "Emulated time from the last kernel of a step to the update of its first weights.",
        ("role",),
    ),
    "backward_iteration_seconds": Metric(
        "Emulated time of the backward pass of the last round of a step.", ("role",)
    ),
    "bandwidth_bytes_per_second": Metric(
        "Bytes that a role sends in an emulated second.", ("role", "direction")
    ),
    "role_seconds_total": Metric(
        "Emulated time by cause; all causes but compute are stalls.", ("role", "cause"), "counter"
    ),
    "utilisation_ratio": Metric(
        "Share of the emulated time in which a system computes, or a server or switch sends.",
        ("role",),
    ),
    "power_watts": Metric("Power of an emulated system.", ("role",)),
}
"""Numbers of a running workflow by name; all get the label ``workflow`` before these labels."""


class Sample(Config):
    """One number at this moment, with the values of its labels in the order of its metric."""

    metric: str
    value: float
    labels: tuple[Annotated[str, Field(max_length=64)], ...] = ()


class Telemetry(Config):
    """The numbers of a running workflow at its newest report."""

    samples: Annotated[tuple[Sample, ...], Field(max_length=MOST_SAMPLES)] = ()

    def of(self, metric: str) -> Iterator[Sample]:
        """Return the samples of a metric."""
        return (sample for sample in self.samples if sample.metric == metric)

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        for sample in self.samples:
            metric = WORKFLOW_METRICS.get(sample.metric)
            if metric is None:
                raise ValueError(f"must be one of {', '.join(WORKFLOW_METRICS)}: {sample.metric}")
            if len(sample.labels) != len(metric.labels):
                raise ValueError(f"labels of {sample.metric} must be {metric.labels}")
        return self


class Numbers(Config):
    """The numbers of a management at a moment, and those of its running workflows by name."""

    management: tuple[Sample, ...] = ()
    workflows: Mapping[str, Telemetry] = Field(default_factory=dict)
