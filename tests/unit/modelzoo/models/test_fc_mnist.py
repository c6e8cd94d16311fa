"""The classifier of digits is a stack of torch's linear layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.fc_mnist import FcMnistModel
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.models import build_model, training_example

SECTION = {"name": "fc_mnist", "depth": 2, "hidden_size": 20, "activation_fn": "relu"}
IMAGES = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 9, 3, 3])


def build(**changes: object) -> FcMnistModel:
    model = build_model(SECTION | changes, seed=0)
    assert isinstance(model, FcMnistModel)
    return model


@pytest.mark.parametrize("activation", ["relu", None])
def test_loss_equals_that_of_torch(activation: str | None) -> None:
    model = build(activation_fn=activation)
    sizes, between = (784, 20, 20), nn.ReLU() if activation else nn.Identity()
    plain = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 20), between, nn.Linear(20, 20), between, nn.Linear(20, 10)
    )
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            theirs.copy_(ours)
    expected = F.nll_loss(plain(IMAGES).log_softmax(1), LABELS)
    torch.testing.assert_close(model(IMAGES, LABELS), expected)
    for size, layer in zip(sizes, model.layers, strict=True):
        for parameter in layer.parameters():
            assert 0.5 * size**-0.5 < parameter.abs().max().item() <= size**-0.5


def test_hidden_sizes_replace_depth() -> None:
    shapes = [tuple(p.shape) for p in build(hidden_sizes=[5, 7], use_bias=False).parameters()]
    assert shapes == [(5, 784), (7, 5), (10, 7)]


def test_training_step_compiles_with_dropout() -> None:
    """From shapes alone: every op has a kernel, every weight a gradient."""
    example = training_example(SECTION | {"dropout": 0.1}, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}


def test_evaluation_counts_right_classes() -> None:
    model = build(compute_eval_metrics=True, hidden_sizes=[5]).eval()
    assert model.accuracy is not None
    model(IMAGES, LABELS)
    hidden, last = model.layers
    best = last(F.relu(hidden(IMAGES.flatten(1)))).argmax(1)
    assert float(model.accuracy) == (best == LABELS).float().mean()


@pytest.mark.parametrize("change", [{"depth": None}, {"activation_fn": "gelu"}])
def test_other_models_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**change)
    assert next(iter(change)) in f"{caught.value.what} {caught.value.rule}"
