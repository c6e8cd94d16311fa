"""Listeners: what they receive is that of the whole batch, for any number of systems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from cstorch.listeners.hooks import register_traced_tensor_hook
from cstorch.listeners.listener import (
    ActivationDump,
    NormTensorListener,
    SummaryTensorListener,
    TensorListener,
)
from tests.support.programs.cstorch_program import (
    batches,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression, random_batches
from tests.support.runs.tiny_training import Shape

Numbers = dict[str, float]


class Bias(nn.Module):
    """A row that is added to every sample."""

    def forward(self) -> torch.Tensor:
        return torch.ones(1, 4)


class Shifted(Regression):
    """A network with a module that returns one row, whatever the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = Bias()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x + self.bias(), y)


def heard(listeners: list[TensorListener], shape: Shape, device: str = "CSX") -> list[float]:
    """Train one step with listeners; return its loss."""
    handles = [register_traced_tensor_hook(listener) for listener in listeners]
    try:
        with running_backend(shape, device) as backend:
            return losses(training_step(backend), executor(1))
    finally:
        for handle in handles:
            handle.remove()


@pytest.fixture(scope="module")
def expected() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output of the first layer on the first batch, and its gradient."""
    model, batch = Regression(), batches()[0]
    seen: list[torch.Tensor] = []

    def keep(_module: object, _args: object, output: torch.Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    model.layers[0].register_forward_hook(keep)
    model(**batch).backward()
    (output,) = seen
    assert output.grad is not None
    return output.detach(), output.grad


@pytest.mark.parametrize(("num_csx", "device"), [(1, "CSX"), (2, "CSX"), (1, "CPU")])
def test_norms_and_summaries_are_those_of_the_batch(
    num_csx: int, device: str, expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Of activations and of the gradients with respect to them."""
    found: Numbers = {}
    listeners: list[TensorListener] = [
        NormTensorListener("norms", ["layers.0.*"], lambda step, numbers: found.update(numbers)),
        SummaryTensorListener("all", ["*.0.fwd"], lambda step, numbers: found.update(numbers)),
    ]
    heard(listeners, Shape(num_csx), device)
    output, gradient = expected
    assert found == pytest.approx(
        {
            "norms/layers.0.fwd/norm": float(output.norm()),
            "norms/layers.0.bwd/norm": float(gradient.norm()),
            "all/layers.0.fwd/mean": float(output.mean()),
            "all/layers.0.fwd/std": float(output.std(correction=0)),
            "all/layers.0.fwd/min": float(output.min()),
            "all/layers.0.fwd/max": float(output.max()),
        },
        rel=1e-4,
    )


def test_one_row_is_no_sample_where_others_have_several() -> None:
    """A step of three samples is recorded for two, and for one."""
    found: Numbers = {}
    listener = NormTensorListener("n", ["*.fwd"], lambda _, numbers: found.update(numbers))
    handle = register_traced_tensor_hook(listener)
    try:
        with running_backend() as backend:
            backends.csx.performance.micro_batch_size = 2
            model = cstorch.compile(Shifted(), backend)

            @cstorch.trace
            def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
                return model(**batch)

            losses(step, executor(1, loader(lambda: random_batches(1, 3))))
    finally:
        handle.remove()
    first = Regression().layers[0](random_batches(1, 3)[0]["x"] + 1)
    assert found["n/layers.0.fwd/norm"] == pytest.approx(float(first.detach().norm()), rel=1e-4)
    assert "n/bias.fwd/norm" not in found


def test_dump_has_the_activations_of_the_batch(
    tmp_path: Path, expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """A file appears when the buffered steps are complete, or at the end; the loss is the same."""
    dump = ActivationDump(tmp_path / "dumps", buffer_steps=1)
    assert heard([dump], Shape(2)) == heard([], Shape(2))
    assert not (tmp_path / "dumps").exists()
    dump.flush()
    arrays = np.load(tmp_path / "dumps" / "act_dump_1.npz")
    assert sorted(arrays) == ["1.layers.0.fwd", "1.layers.1.fwd"]
    assert torch.allclose(torch.from_numpy(arrays["1.layers.0.fwd"]), expected[0], rtol=1e-5)
