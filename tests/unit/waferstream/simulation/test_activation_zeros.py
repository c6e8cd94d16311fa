"""Zeros among activations, per layer, and what skipping them would save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.errors import raises
from tests.support.runs.tiny_run import write_run
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.reports.activation_zeros import ProductZeros
from waferstream.simulation.activation_zeros import counted_zeros, measure_zeros, zeros_of
from waferstream.training.setup.model import make_model


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
    found = measure_zeros(model, {"x": torch.ones(3, 4)})
    assert found.products == (ProductZeros("up", 0.0, 0.5), ProductZeros("down", 0.5, 0.5))
    assert (found.samples, found.saved) == (3, 0.25)
    assert not model.up._forward_pre_hooks


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU()])
def test_smooth_activations_have_no_zeros(activation: nn.Module) -> None:
    assert measure_zeros(Perceptron(activation), {"x": torch.ones(3, 4)}).saved == 0.0


def test_convolution_counts_each_weight_of_a_feature() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1))
    with counted_zeros(model) as (layer,):
        model(-torch.ones(1, 2, 5, 5))
    assert (layer.share, layer.work) == (1.0, 50 * 27)


class _Named(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x)
        return result


def test_model_without_products_saves_nothing() -> None:
    assert measure_zeros(_Named(nn.ReLU()), {"x": torch.ones(2)}).saved == 0.0


def params_of(folder: Path, **changes: Any) -> Params:
    """Return the configuration of a tiny run."""
    write_run(folder, **changes)
    return load_params(folder / "params.yaml")


def test_zeros_of_a_configuration_are_stated_by_product(tmp_path: Path) -> None:
    """The second product of a ReLU layer reads zeros; normalized inputs of the first are none."""
    found = zeros_of(params_of(tmp_path, init__model__nonlinearity="relu"))
    shares = {product.layer: product.share for product in found.products}
    downs = [share for layer, share in shares.items() if layer.endswith("down")]
    assert downs
    assert all(0.3 < share < 0.7 for share in downs)
    assert all(shares[layer] == 0 for layer in shares if layer.endswith("up"))
    assert sum(product.part for product in found.products) == pytest.approx(1)
    assert 0.05 < found.saved < 0.5
    assert "initial weights" in found.verdict


def test_zeros_of_a_checkpoint_are_those_of_its_weights(tmp_path: Path) -> None:
    """With biases far below zero, a ReLU passes nothing on."""
    params = params_of(tmp_path, init__model__nonlinearity="relu")
    model = make_model(params.trainer.init)
    states = {
        name: np.full(tensor.shape, -100, "f4") if name.endswith("up.bias") else tensor.numpy()
        for name, tensor in model.state_dict().items()
    }
    path = tmp_path / "trained.mdl"
    append_tensors(path, "model", states)
    write_metadata(path, {})
    changes = {"init__model__nonlinearity": "relu", "fit__ckpt_path": str(path)}
    found = zeros_of(params_of(tmp_path, **changes))
    assert all(one.share == 1 for one in found.products if one.layer.endswith("down"))
    assert "trained.mdl" in found.verdict


def test_model_that_exceeds_the_host_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waferstream.simulation.activation_zeros.free_bytes", lambda: 1000)
    with raises(ConfigError, "model-exceeds-host"):
        zeros_of(params_of(tmp_path))
