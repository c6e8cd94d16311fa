"""A batch reaches the model whole, in parts, or by the names of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from cstorch.trainer.batch import loss_of
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

INPUT = torch.arange(12.0).reshape(3, 4)
TARGET = torch.ones(3, 1)


@dataclass(frozen=True)
class Sample:
    """A batch as an object."""

    input: torch.Tensor
    labels: torch.Tensor


class Layer(nn.Module):
    """A module with one layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)


class Net(Layer):
    """A model that takes the parts of a batch."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(input)
        return output


class Whole(Layer):
    """A model that takes a batch whole."""

    def forward(self, batch: Any) -> torch.Tensor:
        if isinstance(batch, tuple):
            batch = Sample(*batch)
        return functional.mse_loss(self.layer(batch.input), batch.labels)


class Named(Layer):
    """A model that takes the names of a batch, and returns its loss."""

    def forward(self, input: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.layer(input), labels)


SAMPLE = Sample(INPUT, TARGET)
NAMESPACE = SimpleNamespace(input=INPUT, labels=TARGET)


@pytest.mark.parametrize(
    ("model", "loss_fn", "batch"),
    [
        pytest.param(Net(), functional.mse_loss, SAMPLE, id="object and loss_fn"),
        pytest.param(Net(), functional.mse_loss, NAMESPACE, id="namespace and loss_fn"),
        pytest.param(Named(), None, SAMPLE, id="object by names"),
        pytest.param(Named(), None, {"labels": TARGET, "input": INPUT}, id="dict by names"),
        pytest.param(Whole(), None, SAMPLE, id="object whole"),
        pytest.param(Whole(), None, (INPUT, TARGET), id="tuple whole"),
    ],
)
def test_loss_is_that_of_the_parts(model: nn.Module, loss_fn: Any, batch: Any) -> None:
    expected = functional.mse_loss(Net()(INPUT), TARGET)
    assert torch.equal(loss_of(model, loss_fn, batch), expected)


@pytest.mark.parametrize("batch", [object(), SimpleNamespace(name="x"), 3, {}, ()])
def test_batch_without_tensors_is_refused(batch: Any) -> None:
    with raises(ConfigError, "batch-not-tuple-or-dict"):
        loss_of(Named(), None, batch)


class Lossy(Layer):
    """A model that returns its loss, though it gets no target."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(input).square().mean()
        return output


@pytest.mark.parametrize(
    ("model", "batch", "code", "remedy"),
    [
        (Named(), (INPUT, TARGET), "batch-does-not-fit-model", "leave out loss_fn"),
        (Net(), {"pixels": INPUT, "labels": TARGET}, "batch-does-not-fit-model", "pixels"),
        (Lossy(), (INPUT, TARGET), "loss-of-loss", "leave out loss_fn"),
    ],
    ids=["target", "names", "twice"],
)
def test_loss_fn_that_does_not_go_with_the_model_is_refused_with_a_remedy(
    model: nn.Module, batch: Any, code: str, remedy: str
) -> None:
    with raises(ConfigError, code) as caught:
        loss_of(model, functional.mse_loss, batch)
    assert remedy in str(caught.value.remedy)
