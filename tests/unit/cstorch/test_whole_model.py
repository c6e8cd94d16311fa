"""A model after the end of its cluster: an ordinary one, with every trained value."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32 on whole batches, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 8
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


class Normed(nn.Module):
    """A model with buffers that training writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)
        return output


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    return x, x.sum(dim=1, keepdim=True)


def train_plainly(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x, y = data()
    for _ in range(steps):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()


def fitted(model: nn.Module, optimizer: Any, steps: int = 2) -> cstorch.Trainer:
    """Return the trainer of a model after its fit."""
    config = cstorch.CSConfig(max_steps=steps, cluster=LOCAL)
    trainer = cstorch.Trainer(
        model=model, optimizer=optimizer, config=config, loss_fn=functional.mse_loss
    )
    trainer.fit([data()])
    return trainer


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def expected(steps: int) -> dict[str, torch.Tensor]:
    model = Normed()
    train_plainly(model, sgd(model), steps)
    return model.state_dict()


def assert_same(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    found = model.state_dict()
    assert found.keys() == values.keys()
    for name, value in values.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=name)


def test_model_is_ordinary_after_shutdown() -> None:
    """Parameters and buffers have their values, and the classes that they had before."""
    model = Normed()
    before = dict(model.named_buffers())
    fitted(model, sgd(model)).shutdown()
    assert_same(model, expected(2))
    assert {type(p) for p in model.parameters()} == {nn.Parameter}
    assert {type(b) for b in model.buffers()} == {torch.Tensor}
    assert all(tensor is before[name] for name, tensor in model.named_buffers())


@pytest.mark.parametrize("what", ["state_dict", "model"])
def test_model_is_saved_after_shutdown(what: str) -> None:
    """Its buffers are in the file, too."""
    model, file = Normed(), io.BytesIO()
    fitted(model, sgd(model)).shutdown()
    torch.save(model.state_dict() if what == "state_dict" else model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=what == "state_dict")
    other = Normed() if what == "state_dict" else loaded
    if what == "state_dict":
        other.load_state_dict(loaded)
    assert_same(other, expected(2))


@pytest.mark.parametrize("is_ended", [False, True])
def test_plain_pytorch_goes_on_with_the_model(is_ended: bool) -> None:
    """After a fit as after a shutdown, with an optimizer of torch."""
    model = Normed()
    trainer = fitted(model, sgd(model))
    if is_ended:
        trainer.shutdown()
    train_plainly(model, sgd(model), 2)
    assert_same(model, expected(4))


def test_trainers_follow_one_another_on_a_model() -> None:
    """Each goes on with the values of the one before, which need not be shut down."""
    model = Normed()
    for _ in range(3):
        fitted(model, sgd(model), steps=1)
    fitted(model, sgd(model), steps=1).shutdown()
    assert_same(model, expected(4))


def test_simulation_follows_a_training() -> None:
    """The three lines of the README, for a model with batch norm."""
    model = Normed()
    fitted(model, sgd(model)).shutdown()
    table = cstorch.simulate(model, data(), num_csx=[1], loss_fn=functional.mse_loss)
    assert table is not None
    assert_same(model, expected(2))


def test_names_taken_before_the_end_follow_it() -> None:
    """A state dict from before the fit has the trained values, as in PyTorch."""
    model = Normed()
    state = model.state_dict()
    trainer = fitted(model, sgd(model))
    later = model.state_dict()
    trainer.shutdown()
    for name, value in expected(2).items():
        for one in (state, later):
            torch.testing.assert_close(one[name], value, rtol=0, atol=1e-6, msg=name)
    assert copy.deepcopy(model) is not model
