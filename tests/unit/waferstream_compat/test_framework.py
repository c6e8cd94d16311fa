"""``cerebras.framework``: models whose loss follows from the targets."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream_compat.framework import CerebrasModel


def test_class_numbers_have_cross_entropy(caplog: pytest.LogCaptureFixture) -> None:
    """Scores are in the last dimension, or in torch's place; the log names the loss."""
    model, rows, pixels = CerebrasModel(), torch.randn(4, 3), torch.randn(2, 3, 5, 6)
    numbers, image = torch.tensor([0, 2, 1, 1]), torch.randint(0, 3, (2, 5, 6))
    with caplog.at_level(logging.WARNING, "waferstream"):
        assert torch.equal(model.default_loss(rows, numbers), cross_entropy(rows, numbers))
    assert "cross_entropy" in caplog.text
    expected = cross_entropy(pixels, image)
    assert torch.equal(model.default_loss(pixels, image), expected)
    assert torch.equal(model.default_loss(pixels.movedim(1, -1), image.int()), expected)


def test_values_have_the_squared_error() -> None:
    output, target = torch.randn(4, 2), torch.randn(4, 2)
    assert torch.equal(CerebrasModel().default_loss(output, target), mse_loss(output, target))


@pytest.mark.parametrize(
    "target", [torch.zeros(4), torch.zeros(4, 5, dtype=torch.long), torch.zeros(3).long()]
)
def test_other_targets_need_a_loss(target: torch.Tensor) -> None:
    """Values of another shape, class numbers of two meanings, another number of rows."""
    with raises(ConfigError, "loss-unknown") as caught:
        CerebrasModel().default_loss(torch.zeros(4, 5, 5), target)
    assert "loss_fn" in (caught.value.remedy or "")


def test_module_is_called() -> None:
    module = nn.Linear(3, 2)
    rows = torch.randn(4, 3)
    assert torch.equal(CerebrasModel(module)(rows), module(rows))
