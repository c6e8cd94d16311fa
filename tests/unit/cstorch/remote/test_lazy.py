"""Lazy creation: values, generator and memory equal those of plain PyTorch where they must."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import cstorch
from cstorch.remote import lazy
from cstorch.remote.lazy import lazy_creation
from cstorch.remote.tensor import RemoteTensor
from cstorch.remote.weights import Weights
from tests.support.programs.cstorch_program import executor, running_backend, training_step
from tests.support.roles.local_machine import Regression


class Holder:
    """A holder of no values: the cluster has not started."""

    has_ended = False

    def settle(self) -> None:
        """Do nothing."""

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        raise AssertionError(name)


def build(make: Callable[[], nn.Module], *, is_lazy: bool) -> nn.Module:
    """Make a model from seed 7, inside or outside of the context."""
    torch.manual_seed(7)
    if not is_lazy:
        return make()
    with lazy_creation():
        return make()


def twice_initialized() -> nn.Module:
    """Return layers that are initialized again after they were made, as models do."""
    model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2), nn.Linear(2, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
            layer.weight.data.mul_(3.0)
    return model


def truncated_copies() -> nn.Module:
    """Return copies of a layer, which read its values while the model is made."""
    layer = nn.Linear(3, 3)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    return nn.Sequential(layer, copy.deepcopy(layer), nn.Linear(3, 3))


def eager_draw_in_between() -> nn.Module:
    """Return layers between which another random tensor is made."""
    first = nn.Linear(3, 3)
    scale = nn.Parameter(torch.randn(3))
    second = nn.Linear(3, 3)
    second.register_parameter("scale", scale)
    return nn.Sequential(first, second)


def copied_layers() -> nn.Module:
    """Return layers made by deepcopy, and an embedding whose padding row is zeroed."""
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    return nn.Sequential(nn.Embedding(5, 4, padding_idx=1), encoder, copy.deepcopy(encoder))


def orthogonal() -> nn.Module:
    """Return a layer whose initialization computes."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    nn.init.orthogonal_(second.weight)
    with torch.no_grad():
        first.bias.copy_(torch.arange(4.0))
        second.bias.data = torch.ones(4)
    return nn.Sequential(first, second)


def own_generators() -> nn.Module:
    """Return a model that leaves the meta device, initialized from generators of its own."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.to_empty(device="cpu")
    shared = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        own = torch.Generator().manual_seed(len(name)) if "weight" in name else shared
        nn.init.normal_(parameter, generator=own)
    return model


MODELS = [
    own_generators,
    twice_initialized,
    truncated_copies,
    eager_draw_in_between,
    copied_layers,
    orthogonal,
]


@pytest.mark.parametrize("make", MODELS)
def test_small_model_is_that_of_plain_pytorch(make: Callable[[], nn.Module]) -> None:
    expected, state = build(make, is_lazy=False), torch.get_rng_state()
    model = build(make, is_lazy=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert {type(p) for p in model.parameters()} == {nn.Parameter}
    assert_equal(dict(model.named_parameters()), expected)


@pytest.mark.parametrize("make", MODELS)
def test_large_model_is_sent_in_parts_and_freed(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", 0)
    expected = build(make, is_lazy=False)
    model = build(make, is_lazy=True)
    sent = {}
    weights = Weights(model, Holder())
    for part in weights.initial_parts():
        sent.update({name: value.clone() for name, value in part.items()})
    assert_equal(sent, expected)


def test_large_model_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", 0)
    model = build(twice_initialized, is_lazy=True)
    weights = Weights(model, Holder())
    assert memory_of(weights) == 0
    peaks = [memory_of(weights) for _ in weights.initial_parts()]
    assert max(peaks) == 4 * (15 + 5)  # one weight, and the bias made before its last call
    assert memory_of(weights) == 0
    again = {
        name: value.clone() for part in weights.initial_parts() for name, value in part.items()
    }
    assert_equal(again, build(twice_initialized, is_lazy=False))
    assert memory_of(Weights(build(own_generators, is_lazy=True), Holder())) == 0


def test_large_model_is_initialized_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", 0)
    expected = build(twice_initialized, is_lazy=False)
    model = build(twice_initialized, is_lazy=True)
    torch.manual_seed(99)  # a read afterwards draws from the state of the recorded calls
    state = torch.get_rng_state()
    first: torch.Tensor = model.get_parameter("0.weight")
    assert isinstance(first, RemoteTensor)
    assert first.sum() == expected.get_parameter("0.weight").sum()
    assert torch.equal(torch.get_rng_state(), state)
    assert_equal(dict(model.named_parameters()), expected)


def test_loaded_values_replace_recorded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", 0)
    expected = build(twice_initialized, is_lazy=False)
    model = build(orthogonal, is_lazy=True)
    values = {name: torch.full_like(value, 2.0) for name, value in model.state_dict().items()}
    model.load_state_dict(values)
    assert_equal(dict(model.named_parameters()), values)
    model = build(twice_initialized, is_lazy=True)
    model.load_state_dict(expected.state_dict())
    weights = Weights(model, Holder())
    assert_equal({n: v for part in weights.initial_parts() for n, v in part.items()}, expected)


def test_lazy_model_trains_to_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for limit in (0, 1 << 30):
        monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", limit)
        with running_backend() as backend:
            torch.manual_seed(7)
            with backend.device:
                cstorch.compile(Regression(), backend)
            step = training_step(backend)
            for batch in executor():
                step(batch)
            digests.add(backend.weights_digest())
    assert len(digests) == 1


def test_failed_start_keeps_lazy_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were sent to a cluster that did not start are sent again to the next one."""
    monkeypatch.setattr(lazy, "STAYS_LAZY_BYTES", 0)
    weights = Weights(build(twice_initialized, is_lazy=True), Holder())
    for _ in zip(range(4), weights.initial_parts(), strict=False):
        pass
    torch.manual_seed(3)
    sent = {n: v.clone() for part in weights.initial_parts() for n, v in part.items()}
    assert_equal(sent, build(twice_initialized, is_lazy=False))


def memory_of(weights: Weights) -> int:
    """Return the bytes of all storages of the weights."""
    return sum(value.untyped_storage().size() for value in weights.local().values())


def assert_equal(
    values: dict[str, torch.Tensor] | dict[str, nn.Parameter], expected: object
) -> None:
    """Assert that tensors are bitwise equal to those of a module or a dict."""
    others = dict(expected.named_parameters()) if isinstance(expected, nn.Module) else expected
    assert isinstance(others, dict)
    assert values.keys() == others.keys()
    for name, value in values.items():
        assert torch.equal(value, others[name]), name
