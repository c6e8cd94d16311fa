"""Layers are left out of a recording only where nothing can tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from cstorch.listeners.hooks import register_traced_tensor_hook
from cstorch.trace import TracedStep
from cstorch.tracing.forward import Forward
from cstorch.tracing.start_key import RepeatedLayers
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.roles.local_machine import Regression, random_batches
from waferstream.compiler.derivation.depth import Stack


class Model(nn.Module):
    """Equal layers, with a parameter outside of them."""

    def __init__(self, count: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(count))
        self.head = nn.Linear(2, 2)
        self.repeated_layers: nn.ModuleList | None
        vars(self)["repeated_layers"] = self.layers


def repeated(
    change: Callable[[Any], object] = lambda _: None, identity: str | None = "code", count: int = 12
) -> RepeatedLayers | None:
    """Return what is found in a model that was changed."""
    model = Model(count)
    change(model)
    return RepeatedLayers.of(model, Forward(lambda _: torch.zeros(()), identity))


CHANGES: dict[str, Callable[[Any], object]] = {
    "not named": lambda m: vars(m).pop("repeated_layers"),
    "constant": lambda m: setattr(m.layers[7], "scale", 2.0),
    "shape": lambda m: setattr(m.layers, "7", nn.Linear(2, 2, bias=False)),
    "frozen": lambda m: m.layers[7].requires_grad_(False),
    "buffer": lambda m: m.layers[7].register_buffer("mask", torch.ones(2)),
    "shared": lambda m: setattr(m.layers[7], "weight", m.layers[6].weight),
    "tied": lambda m: setattr(m.layers[7], "weight", m.head.weight),
    "hook": lambda m: m.layers[7].register_forward_hook(lambda *_: None),
}


def test_first_layers_are_left_in_the_model() -> None:
    """All are back after the block."""
    found = repeated()
    assert found is not None
    layers = list(found.layers)
    with found.first(5):
        assert list(found.layers) == layers[:5]
    assert (found.stack, list(found.layers)) == (Stack("layers", 12), layers)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_layers_that_may_differ_are_all_recorded(change: Callable[[Any], object]) -> None:
    assert repeated(change) is None


def test_layers_of_unknown_code_are_all_recorded() -> None:
    """The same where there are few, and where hooks compute with what each layer returns."""
    assert repeated(identity=None) is None
    assert repeated(count=11) is None
    handle = register_traced_tensor_hook(lambda *_: None)
    assert repeated() is None
    handle.remove()
    assert repeated() is not None


class Deep(Regression):
    """A network whose layers are all alike."""

    def __init__(self) -> None:
        super().__init__(depth=12)

    @property
    def repeated_layers(self) -> nn.ModuleList:
        """All layers."""
        layers: nn.ModuleList = self.layers
        return layers


def artifact(folder: Path, identity: str | None, size: int) -> tuple[list[str], bytes]:
    """Compile a step of an uneven batch; return what a hook hears, and the compiled program."""
    heard: dict[str, None] = {}

    def hear(tensor: torch.Tensor, name: str) -> None:
        assert tensor.shape[0] != 1, "a recording of one sample beside larger ones is not heard"
        heard[name] = None

    hear.reads_outlines_only = True  # type: ignore[attr-defined]
    handle = register_traced_tensor_hook(hear)
    with running_backend(compile_dir=folder, compile_only=True) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(Deep(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
        forward = Forward(lambda batch: model(**batch), identity)

        def train(batch: Any) -> torch.Tensor:
            loss = forward(batch)
            loss.backward()
            optimizer.step()
            return loss

        losses(TracedStep(train, forward), executor(1, loader(lambda: random_batches(1, 7))))
    handle.remove()
    (found,) = folder.rglob("compiled.json")
    return sorted(heard), found.read_bytes()


@pytest.mark.parametrize(("size", "recorded"), [(4, [6, 5]), (2, [6, 5, 6, 5])])
def test_artifact_of_repeated_layers_is_that_of_all(
    size: int, recorded: list[int], tmp_path: Path
) -> None:
    """Digest, schedule, kernels and streams byte for byte; hooks hear of every layer.

    Of seven samples, so that micro-batches of two leave one of a single sample.
    """
    sizes: list[int] = []
    original = RepeatedLayers.first

    def noted(repeated: RepeatedLayers, count: int) -> Any:
        sizes.append(count)
        return original(repeated, count)

    with mock.patch.object(RepeatedLayers, "first", noted):
        few = artifact(tmp_path / "few", "code", size)
    assert sizes == recorded
    assert few == artifact(tmp_path / "all", None, size)
