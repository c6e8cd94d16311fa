"""What a management and its running workflows do, in numbers that Prometheus collects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from waferstream.management.model.telemetry import (
    MANAGEMENT_METRICS,
    WORKFLOW_METRICS,
    Metric,
    Numbers,
    Sample,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

Family = CounterMetricFamily | GaugeMetricFamily


def exposition(numbers: Numbers) -> bytes:
    """Return numbers in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collected(numbers))
    return generate_latest(registry)


class _Collected(Collector):
    """Numbers as families of metrics."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Family]:
        yield from _families(MANAGEMENT_METRICS, (), [((), self._numbers.management)])
        told = [((name,), told.samples) for name, told in self._numbers.workflows.items()]
        yield from _families(WORKFLOW_METRICS, ("workflow",), told)


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
