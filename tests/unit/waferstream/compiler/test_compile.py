"""Compiling a step: its mode, and the digest that names the result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.program.program import Program
from waferstream.numerics.precision import StreamPrecision

REQUEST = CompileRequest(FP32, micro_batch_size=2, num_micro_batches=2, target="2 systems")


def program(model: nn.Module) -> Program:
    batch = random_batches(1, 2)[0]
    return compile_step(backward_step(model), model, list(batch.items()), REQUEST)[0].program


def test_step_without_backward_is_an_evaluation() -> None:
    """Its program has no gradients and another digest."""
    model, batch = Regression(), random_batches(1, 2)[0]

    def step(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [model(*inputs)]

    compiled, was_found = compile_step(step, model, list(batch.items()), REQUEST)
    trained = program(model)
    assert not was_found
    assert (compiled.program.kind, trained.kind) == ("eval", "train")
    assert not compiled.program.trained
    assert compiled.program.digest != trained.digest
    assert compiled.program.batch_size == 4


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (FP32, "float32"),
        (BF16, "bfloat16"),
        (StreamPrecision("bfloat16", "float32"), "float32"),
        (StreamPrecision("float16", "float16"), "float16"),
        (StreamPrecision("cbfloat16", "cbfloat16"), "float32"),
        (StreamPrecision("bfloat16", "bfloat16", rounding="stochastic"), "float32"),
    ],
)
def test_gradients_of_a_micro_batch_have_the_dtype_of_kernels(
    precision: StreamPrecision, dtype: str
) -> None:
    """It is fp32 where kernels hold half types in fp32; sums are fp32 always."""
    found = compile_model(Regression(), random_batches(1, 4)[0], 2, precision=precision).program
    assert found.dtype_of_sum(1) == dtype
    assert found.dtype_of_sum(2) == "float32"


def test_digest_covers_constants() -> None:
    """Two models that differ in a buffer have different programs."""

    class Masked(Regression):
        def __init__(self, mask: list[float]) -> None:
            super().__init__()
            self.mask: torch.Tensor
            self.register_buffer("mask", torch.tensor(mask))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x * self.mask, y)

    digests = [
        program(Masked(mask)).digest
        for mask in ([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0])
    ]
    assert digests[0] == digests[2] != digests[1]


def test_digest_covers_layers() -> None:
    """The same arithmetic, cut into other layers, is another program."""

    class Plain(nn.ModuleList):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (self[2](self.tanh(self[0](x))) - y).square().mean()

        def tanh(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x)

    class Named(Plain):
        def tanh(self, x: torch.Tensor) -> torch.Tensor:
            return self[1](x)

    as_function, as_module = (
        program(kind([nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)])) for kind in (Plain, Named)
    )
    assert len(as_module.segments) > len(as_function.segments)
    assert as_module.digest != as_function.digest
