"""A key names all that the forward pass of a step reads; what cannot be known has no key."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch.current import current_session
from cstorch.listeners.hooks import register_traced_tensor_hook
from cstorch.tracing.call import Call
from cstorch.tracing.forward import Forward
from cstorch.tracing.start_key import start_key
from tests.support.programs.cstorch_program import running_backend
from tests.support.runs.tiny_training import Shape, cluster_config


class Model(nn.Module):
    """A model with a buffer, a constant and a shared parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
        self.two.weight = self.one.weight
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.ones(2))


def step(batch: Any) -> None:
    """Do nothing: a key needs no run."""


def other_step(batch: Any) -> None:
    """Do nothing either."""


def key(
    change: Callable[[Model], object] = lambda _: None,
    function: Callable[..., Any] = step,
    identity: str | None = "code",
    **batch: Any,
) -> str | None:
    """Return the key of a step of a model that was changed."""
    model = Model()
    change(model)
    call = Call.of(function, ({"x": torch.zeros(4, 2), **batch},), {})
    return start_key(current_session(), model, call, Forward(lambda _: torch.zeros(()), identity))


@pytest.fixture(autouse=True)
def _backend() -> Iterator[None]:
    with running_backend():
        yield


CHANGES: dict[str, Callable[[Model], object]] = {
    "constant": lambda m: setattr(m, "scale", 2.0),
    "buffer": lambda m: m.mask.zero_(),
    "buffer's type": lambda m: m.double(),
    "mode": lambda m: m.one.eval(),
    "frozen": lambda m: m.one.requires_grad_(False),
    "untied": lambda m: setattr(m.two, "weight", nn.Parameter(torch.zeros(2, 2))),
    "kind": lambda m: setattr(m, "one", nn.Bilinear(1, 2, 2)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_key_changes_with_the_model(change: Callable[[Model], object]) -> None:
    """Values of parameters do not count: they stream."""
    assert key(lambda m: nn.init.ones_(m.one.weight)) == key()
    assert key(change) not in (key(), None)


def test_key_changes_with_code_arguments_and_flags() -> None:
    """Also with the extents of the batch, and with constants in it."""
    keys = [
        key(),
        key(identity="other code"),
        key(function=other_step),
        key(x=torch.zeros(5, 2)),
        key(x=torch.zeros(4, 2, dtype=torch.int64)),
        key(y=torch.zeros(1)),
        key(y=1),
        key(y=2),
    ]
    cstorch.backends.csx.precision.optimization_level = 2
    keys.append(key())
    cstorch.backends.csx.performance.micro_batch_size = "fill_wafer"
    keys.append(key())
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_what_cannot_be_known_has_no_key() -> None:
    """Code without an identity, objects, hooks, replaced methods, values that are elsewhere."""
    assert key(identity=None) is None
    assert key(y=object()) is None
    assert key(lambda m: m.one.register_forward_hook(lambda *_: None)) is None
    assert key(lambda m: m.one.weight.register_hook(lambda gradient: gradient)) is None
    assert key(lambda m: setattr(m, "forward", step)) is None
    assert key(lambda m: m.to("meta")) is None
    handle = register_traced_tensor_hook(lambda *_: None)
    assert key() is None
    handle.remove()
    assert key() is not None


@pytest.mark.parametrize(("policy", "is_shared"), [("auto", True), ("fill_wafer", False)])
def test_systems_share_a_key_where_they_share_micro_batches(policy: Any, is_shared: bool) -> None:
    """With another tree, too, which decides nothing of a program; a wafer decides its fit."""
    current_session().shutdown()

    def found(num_csx: int, fan_out: int, system: str = "CS-2") -> str | None:
        config = cluster_config(Shape(num_csx, fan_out), system=system)
        with running_backend(cluster_config=config):
            cstorch.backends.csx.performance.micro_batch_size = policy
            return key(x=torch.zeros(16, 2))

    assert found(1, 2) not in (None, found(1, 2, "CS-3"))
    assert (found(1, 2) == found(2, 4)) == is_shared
