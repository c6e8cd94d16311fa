"""Reading a traced tensor on the host is refused, with the user's line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.compiler.capture.host_reads import refuse_host_draws
from waferstream.core.errors import ApplianceCompilationError

READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cpu()": lambda tensor: tensor.cpu(),  # read
    "numpy()": lambda tensor: tensor.numpy(),  # read
    "numpy.asarray()": lambda tensor: np.asarray(tensor) + 1,  # read
    "print()": lambda tensor: print(tensor, end=""),  # read
    "a format string": lambda tensor: f"{tensor}",  # read
}


class Reads(Regression):
    """A model whose forward pass reads a tensor."""

    def __init__(self, read: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.read = read
        self.table: torch.Tensor
        self.register_buffer("table", torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.read(self.layers[0](x))
        return super().forward(x, y)


class ReadsBuffer(Reads):
    """A model whose forward pass reads one of its buffers."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.read(self.table)
        return Regression.forward(self, x, y)


@pytest.mark.parametrize("call", READS)
def test_host_read_of_a_traced_tensor_is_refused(call: str) -> None:
    """The error names the call and its line in the user's program."""
    with raises(ApplianceCompilationError, "tensor-read-in-trace") as caught:
        compile_model(Reads(READS[call]), random_batches(1, 4)[0], 2)
    assert call in caught.value.what
    assert __file__ in (caught.value.where or "")
    assert (caught.value.where or "").endswith("# read")
    assert "step_closure" in (caught.value.remedy or "")


def test_host_copy_of_a_buffer_is_allowed() -> None:
    """A buffer is a constant of the step."""
    compile_model(ReadsBuffer(READS["cpu()"]), random_batches(1, 4)[0], 2)


def test_host_reads_are_allowed_after_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal ends with the trace, also with one that failed."""
    with raises(ApplianceCompilationError, "tensor-read-in-trace"):
        compile_model(Reads(READS["print()"]), random_batches(1, 4)[0], 2)
    print(torch.ones(1).cpu())
    assert "tensor" in capsys.readouterr().out


@pytest.mark.parametrize(
    "draw",
    [random.random, np.random.rand, lambda: np.random.permutation(4)[0]],
    ids=["random", "numpy", "permutation"],
)
def test_host_draw_is_refused(draw: Callable[[], float]) -> None:
    """Where Python runs once for all steps, every step would get the same numbers."""
    with (
        raises(ApplianceCompilationError, "host-random-in-step") as caught,
        refuse_host_draws(),
    ):
        draw()
    assert "random" in str(caught.value.value)


def test_draw_by_torch_is_allowed() -> None:
    """It is keyed by step and micro-batch."""
    with refuse_host_draws():
        torch.rand(())
