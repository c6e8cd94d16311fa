"""Zeros among activations, per layer, and what skipping them would save."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from waferstream.simulation.activation_zeros import measure_zeros, saved_share, zeros_table


class Perceptron(nn.Module):
    """Two products with an activation function between them."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.activation, self.down = (
            nn.Linear(4, 8, bias=False),
            activation,
            nn.Linear(8, 4),
        )
        self.unused = nn.Linear(2, 2)
        signs = torch.tensor([1.0, -1.0] * 4)
        self.up.weight.data = signs[:, None].expand(8, 4).clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the second product."""
        result: torch.Tensor = self.down(self.activation(self.up(x)))
        return result


def test_zeros_of_relu_are_counted() -> None:
    """Half of its outputs are negative: the second of two equal products reads 50 % zeros."""
    model = Perceptron(nn.ReLU())
    up, down = measure_zeros(model, {"x": torch.ones(3, 4)})
    assert (up.layer, up.share, down.layer, down.share) == ("up", 0.0, "down", 0.5)
    assert up.work == down.work == 3 * 32
    assert saved_share([up, down]) == 0.25
    assert zeros_table([up, down]).splitlines()[-1].endswith("25.0% of products")
    assert not model.up._forward_pre_hooks


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU()])
def test_smooth_activations_have_no_zeros(activation: nn.Module) -> None:
    layers = measure_zeros(Perceptron(activation), {"x": torch.ones(3, 4)})
    assert saved_share(layers) == 0.0


def test_convolution_counts_each_weight_of_a_feature() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1))
    (layer,) = measure_zeros(_Named(model), {"x": -torch.ones(1, 2, 5, 5)})
    assert (layer.share, layer.work) == (1.0, 50 * 27)


class _Named(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x)
        return result


def test_model_without_products_saves_nothing() -> None:
    assert saved_share(measure_zeros(_Named(nn.ReLU()), {"x": torch.ones(2)})) == 0.0
