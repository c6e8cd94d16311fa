"""What a management and its running workflows do, in numbers that Prometheus collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from waferstream.management.model.telemetry import (
    MANAGEMENT_METRICS,
    WORKFLOW_METRICS,
    Metric,
    Sample,
    Telemetry,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

_DECISION_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)

Family = CounterMetricFamily | GaugeMetricFamily


class Numbers(NamedTuple):
    """The numbers of a management at a moment, and those of its running workflows by name."""

    management: Iterable[Sample]
    workflows: Mapping[str, Telemetry]


class Metrics:
    """All numbers of a management, in a registry of its own.

    Those of a workflow are gone as soon as ``look`` does not return it any more.

    Attributes:
        decision_s: Seconds of this host that decisions of the schedule have taken.
    """

    def __init__(self, look: Callable[[], Numbers]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Numbers(look))
        self.decision_s = Histogram(
            "waferstream_decision_seconds",
            "Time to decide what runs next, of this host.",
            buckets=_DECISION_S,
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all numbers in the text format."""
        return generate_latest(self._registry)


class _Numbers(Collector):
    """The families of what is seen at the moment of a collection."""

    def __init__(self, look: Callable[[], Numbers]) -> None:
        self._look = look

    def collect(self) -> Iterator[Family]:
        numbers = self._look()
        yield from _families(MANAGEMENT_METRICS, (), [((), numbers.management)])
        told = [((name,), told.samples) for name, told in numbers.workflows.items()]
        yield from _families(WORKFLOW_METRICS, ("workflow",), told)

    def describe(self) -> Iterator[Family]:
        """Name nothing in advance: ``look`` may not be ready at registration."""
        return iter(())


def _families(
    metrics: Mapping[str, Metric],
    first: tuple[str, ...],
    told: Iterable[tuple[tuple[str, ...], Iterable[Sample]]],
) -> Iterator[Family]:
    """Return the families with a sample; ``first`` are labels whose values stand with samples."""
    families = {name: _family(name, metric, first) for name, metric in metrics.items()}
    for values, samples in told:
        for sample in samples:
            families[sample.metric].add_metric((*values, *sample.labels), sample.value)
    return (family for family in families.values() if family.samples)


def _family(name: str, metric: Metric, first: tuple[str, ...]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(f"waferstream_{name}", metric.meaning, labels=(*first, *metric.labels))
