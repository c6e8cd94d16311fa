"""Metrics: their values on the host, and the same values from traced steps on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends, metrics
from cstorch.metrics.metric import _existing
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import executor, loader, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ConfigError


@pytest.fixture(autouse=True)
def forgotten_metrics() -> Iterator[None]:
    """Forget the metrics of a test, which every later program would hold otherwise."""
    yield
    _existing.clear()


ROWS, CLASSES, STEPS = 8, 4, 2
Batch = dict[str, torch.Tensor]

MAKERS: Mapping[str, Callable[[], metrics.Metric]] = {
    "accuracy": metrics.AccuracyMetric,
    "mean": metrics.MeanMetric,
    "perplexity": metrics.PerplexityMetric,
    "f1": lambda: metrics.FBetaScoreMetric(CLASSES),
    "f2 macro": lambda: metrics.FBetaScoreMetric(CLASSES, 2.0, "macro", ignore_labels=[1]),
    "iou": lambda: metrics.MeanIOUMetric(CLASSES),
    "dice": lambda: metrics.DiceCoefficientMetric(CLASSES),
    "per class": lambda: metrics.MeanPerClassAccuracyMetric(CLASSES),
    "auc": metrics.AUCMetric,
    "auc pr": lambda: metrics.AUCMetric(50, curve="PR"),
    "precision at 2": lambda: metrics.PrecisionAtKMetric(2),
    "recall at 2": lambda: metrics.RecallAtKMetric(2),
}


def batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "x": torch.randn(ROWS, 3, generator=generator),
            "y": torch.randint(0, CLASSES, (ROWS,), generator=generator),
            "weights": torch.randint(0, 2, (ROWS,), generator=generator).float(),
        }
        for _ in range(STEPS)
    ]


def arguments(name: str, labels: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what a metric is updated with."""
    if name == "mean":
        return (logits.sum(1),)
    if name == "perplexity":
        return labels, nn.functional.cross_entropy(logits, labels, reduction="sum")
    if name.startswith("auc"):
        return labels == 1, logits.softmax(1)[:, 1]
    return labels, logits if "at 2" in name else logits.argmax(1)


def update_all(found: Mapping[str, Any], batch: Batch, logits: torch.Tensor) -> None:
    """Update every metric; those of counts without weights, the others with them."""
    for name, metric in found.items():
        weights = {"weight" if name == "mean" else "weights": batch["weights"]}
        weights = {} if name == "perplexity" else weights
        metric(*arguments(name, batch["y"], logits), **weights)


class Net(nn.Module):
    """A classifier with metrics of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, CLASSES)
        self.metrics = nn.ModuleDict({name: make() for name, make in MAKERS.items()})

    def forward(self, batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = self.layer(batch["x"])
        update_all(dict(self.metrics.items()), batch, logits)
        return nn.functional.cross_entropy(logits, batch["y"])


def values(net: Net) -> dict[str, float]:
    return {name: float(metric) for name, metric in net.metrics.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("num_csx", [*nightly(1), 3])
def test_metrics_on_the_cluster_equal_those_of_the_host(num_csx: int) -> None:
    """Over a whole evaluation; a reset begins another one."""
    expected = Net()
    for batch in batches():
        expected(batch)
    backends.csx.performance.micro_batch_size = 2
    alone = metrics.AccuracyMetric("alone")
    with running_backend(Shape(num_csx)) as backend:
        net = Net().eval()
        compiled = cstorch.compile(net, backend)

        @cstorch.trace
        def step(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            loss = compiled(batch)
            alone(batch["y"], batch["y"] * 0)
            return loss, alone.compute()

        for _ in range(2):
            for batch in executor(STEPS, loader(batches), activation_steps=STEPS):
                _, value = step(batch)
            assert values(net) == pytest.approx(values(expected), rel=1e-6)
            assert float(alone) == value.item()
            assert alone.num_updates == STEPS * ROWS // 2
            for metric in (alone, *net.metrics.values()):
                assert isinstance(metric, metrics.Metric)
                metric.reset()
        assert alone.num_updates == 0
        assert net.state_dict().keys() == {"layer.weight", "layer.bias"}
    zeros = torch.cat([batch["y"] == 0 for batch in batches()])
    assert value.item() == zeros.float().mean().item()


def test_metric_of_an_ended_program_does_not_hinder_the_next() -> None:
    """Its value has ended with its cluster, and nobody reads it."""
    kept = []
    for _ in range(2):
        with running_backend(Shape(1)) as backend:
            kept.append(metric := metrics.AccuracyMetric())
            compiled = cstorch.compile(nn.Linear(3, CLASSES).eval(), backend)

            @cstorch.trace
            def step(batch: Batch) -> torch.Tensor:
                logits: torch.Tensor = compiled(batch["x"])  # noqa: B023
                metric(batch["y"], logits.argmax(1))
                return logits.mean()

            for batch in executor(1, loader(batches)):
                step(batch)
    assert len(kept) == 2


def labels_and_logits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return labels, scores and weights of all batches."""
    net = Net()
    both = {name: torch.cat([b[name] for b in batches()]) for name in ("x", "y", "weights")}
    return both["y"], net.layer(both["x"]).detach(), both["weights"]


def value_of(name: str, weights: torch.Tensor | None = None) -> float:
    labels, logits, _ = labels_and_logits()
    metric = MAKERS[name]()
    metric(*arguments(name, labels, logits), **({} if weights is None else {"weights": weights}))
    return float(metric)


def test_metrics_have_the_values_of_their_definitions() -> None:
    """Computed sample by sample."""
    labels, logits, weights = labels_and_logits()
    right = labels == logits.argmax(1)
    assert value_of("accuracy") == right.float().mean()
    assert value_of("accuracy", weights) == pytest.approx(float(right[weights > 0].float().mean()))
    assert value_of("mean") == pytest.approx(float(logits.sum(1).mean()))
    loss = nn.functional.cross_entropy(logits, labels)
    assert value_of("perplexity") == pytest.approx(float(loss.exp()))
    assert value_of("f1") == pytest.approx(float(right.float().mean()))  # all classes together
    shares = [right[labels == label].float().mean() for label in labels.unique()]
    assert value_of("per class") == pytest.approx(float(torch.stack(shares).mean()))
    top = logits.topk(2).indices
    hits = (top == labels[:, None]).any(1).float().mean()
    assert value_of("recall at 2") == pytest.approx(float(hits))
    assert value_of("precision at 2") == pytest.approx(float(hits) / 2)


def overlap(label: int) -> tuple[float, float, float]:
    """Return how often a class is label and prediction, label, and prediction."""
    labels, logits, _ = labels_and_logits()
    is_label, is_prediction = labels == label, logits.argmax(1) == label
    both = is_label & is_prediction
    return float(both.sum()), float(is_label.sum()), float(is_prediction.sum())


def test_metrics_of_classes_are_means_over_classes() -> None:
    """A class that never occurs is no part of the mean; F-beta counts it as 0."""
    found = [overlap(label) for label in range(CLASSES)]
    ious = [both / (a + b - both) for both, a, b in found if a + b > 0]
    assert value_of("iou") == pytest.approx(sum(ious) / len(ious))
    dices = [2 * both / (a + b) for both, a, b in found if a + b > 0]
    assert value_of("dice") == pytest.approx(sum(dices) / len(dices))
    scores = [5 * both / (4 * a + b) for both, a, b in (found[0], found[2], found[3])]
    assert value_of("f2 macro") == pytest.approx(sum(scores) / 3)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    """A positive sample has a higher score than a negative one, up to the thresholds."""
    labels, logits, _ = labels_and_logits()
    scores = logits.softmax(1)[:, 1]
    pairs = scores[labels == 1][:, None] > scores[labels != 1]
    metric = metrics.AUCMetric(5000)
    metric(labels == 1, scores)
    assert float(metric) == pytest.approx(float(pairs.float().mean()), abs=1e-3)


def test_labels_outside_of_the_classes_are_left_out() -> None:
    """Such as the label of padding."""
    metric = metrics.MeanIOUMetric(2)
    metric(torch.tensor([0, 1, -100, 7]), torch.tensor([0, 1, 0, 1]))
    assert float(metric) == 1.0


def test_metric_of_the_users_own_counts_its_updates() -> None:
    """The base class offers what the built-in ones use."""

    class Largest(metrics.Metric):
        largest: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_state("largest", torch.tensor(0.0))

        def update(self, values: torch.Tensor) -> None:
            self.largest = torch.maximum(self.largest, values.max())

        def compute(self) -> torch.Tensor:
            return self.largest

    metric = Largest()
    assert (metric.name, metric.num_updates) == ("Largest", 0)
    assert [float(metric(torch.tensor(values))) for values in ([1.0, 3.0], [2.0])] == [3.0, 3.0]
    assert metric.num_updates == 2
    metric.reset()
    assert (float(metric), metric.num_updates) == (0.0, 0)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: metrics.AUCMetric(curve="roc"), "curve-unknown"),
        (lambda: metrics.FBetaScoreMetric(2, average_type="mean"), "average-type-unknown"),
    ],
)
def test_unknown_option_of_a_metric_is_refused(make: Any, code: str) -> None:
    """The error names the known ones."""
    with raises(ConfigError, code):
        make()


def test_arguments_have_the_names_and_places_of_the_vendor() -> None:
    """Mean and classes with keywords of their own; the name follows."""
    mean = metrics.MeanMetric("mean")
    mean.update(value=torch.tensor(3.0), weight=torch.tensor(2.0))
    mean.update(torch.tensor(6.0))
    assert float(mean) == 4.0
    per_class = metrics.MeanPerClassAccuracyMetric(2, "per class")
    assert per_class.name == "per class"
    for kind in (metrics.MeanIOUMetric, metrics.DiceCoefficientMetric):
        metric = kind(3, ignore_classes=[0], name="kept")
        metric.update(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 2]))
        assert float(metric) == pytest.approx(0.75 if kind is metrics.MeanIOUMetric else 5 / 6)


def test_area_under_precision_and_recall_is_interpolated() -> None:
    """From 2 of 3 true positives to 1 of 1 the slope is 1/2, the area (1 + ln(3) / 2) / 2."""
    metric = metrics.AUCMetric(curve="PR", name="area", summation_method="interpolation")
    metric.update(torch.tensor([0, 1, 1]), torch.tensor([0.3, 0.3, 0.7]))
    assert float(metric) == pytest.approx(((1 + math.log(3) / 2) / 2 + 1) / 2)
    with raises(ConfigError, "summation-method-unknown"):
        metrics.AUCMetric(summation_method="minoring")
