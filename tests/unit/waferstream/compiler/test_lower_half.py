"""Kernels of cbfloat16: computed in fp32, rounded, and costed like any type of 16 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from appliance.coordinator.commands import Run
from appliance.elaboration.elaborate import ClusterSize
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
    start,
)
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.lower_half import HalfMode, to_half
from waferstream.core.program.program import ProgramKind
from waferstream.numerics.cbfloat16 import rounded
from waferstream.numerics.precision import StreamPrecision


class Odd(nn.Module):
    """Constants, writes in place, outputs in several parts, values beyond float16."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(4, 4)
        nn.init.constant_(self.layer.weight, 0.3)
        self.register_buffer("shift", torch.tensor([1.0009765625], dtype=torch.float16))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x.half() * 3e5)
        scaled = hidden * 1e3 + self.shift
        left, right = scaled.chunk(2, dim=-1)
        written = torch.zeros_like(scaled)
        written[:, :2] = left * 0.1
        written[:, 2:].add_(right)
        best, _ = written.max(dim=-1, keepdim=True)
        return ((written / best).float() - y).square().mean()


def compiled_in(half: str, model: nn.Module, trains: bool = False) -> Compiled:
    (batch,) = random_batches(1, 2)
    precision = StreamPrecision(half, half)
    return compile_model(model, batch, 2, trains=trains, precision=precision)


def test_kernels_name_no_float16() -> None:
    """Every type in their text is the one in which values are held."""
    text = "".join(kernel.text for kernel in compiled_in("cbfloat16", Odd()).kernels)
    assert "float16" not in text.replace("cbfloat16", "")
    assert "nearest_" in text


def test_numbers_beyond_float16_survive() -> None:
    """The batch is scaled beyond 65504 and back."""
    model = Odd()
    size, (batch,) = ClusterSize(1), random_batches(1, 2)
    compiled = compiled_in("cbfloat16", model)
    cluster = start(installation(compiled, lambda: [batch], None, size), model, size)
    (result,) = cluster.do(Run(ProgramKind.EVAL, 1, 1))
    x = rounded(rounded(batch["x"].half()) * 3e5)
    weight, bias = (rounded(p.detach()) for p in model.layer.parameters())
    scaled = rounded(
        rounded(rounded(x @ weight.T + bias) * 1e3) + rounded(model.get_buffer("shift"))
    )
    left, right = scaled.chunk(2, dim=-1)
    written = torch.cat([rounded(left * 0.1), right], dim=-1)
    quotient = rounded(written / written.max(dim=-1, keepdim=True).values)
    expected = (quotient - batch["y"]).square().mean().item()
    assert result.values[0] == pytest.approx(expected, rel=1e-6)
    assert result.values[0] < 1e6


def test_program_is_that_of_float16_but_for_its_kernels() -> None:
    """Work, memory and streams are those of a type of 16 bits, so the emulated time is equal."""
    ours, other = (
        compiled_in(half, Regression(), trains=True).program for half in ("cbfloat16", "float16")
    )
    assert ours.segments == other.segments
    timings = []
    for half in ("cbfloat16", "float16", "bfloat16"):
        model, size, (batch,) = Regression(), ClusterSize(2), random_batches(1, 2)
        cluster = start(
            installation(compiled_in(half, model), partial(list, [batch]), None, size),
            model,
            size,
        )
        timings.append(cluster.do(Run(ProgramKind.EVAL, 1, 2))[-1].timing)
    assert timings[0] == timings[1] == timings[2]


def test_tensors_of_a_plain_loop_round_every_result() -> None:
    with HalfMode("cbfloat16"):
        x = to_half(torch.tensor([1.0, 3.0]), "cbfloat16")
        third = (x / 3).float()
        made = torch.full((2,), 0.1).half() * 1.0
    assert torch.equal(third, rounded(torch.tensor([1.0, 3.0]) / 3))
    assert made.dtype == torch.float16
    assert torch.equal(made.float(), rounded(torch.full((2,), 0.1)))
    with pytest.raises(TypeError, match="in place"):
        x.add_(1.0)
