"""Precision levels of single modules and functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch import amp, backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, losses, running_backend, training_step
from waferstream.core.errors import ConfigError


def test_current_pol_is_that_of_the_innermost_function() -> None:
    """Outside it is the flag; None keeps the level, and so does enable_fwd=False."""
    assert cstorch.current_pol() == 1
    inner = cstorch.pol(level=2)(cstorch.current_pol)
    assert cstorch.pol(level=0)(lambda: (cstorch.current_pol(), inner()))() == (0, 2)
    assert cstorch.pol(bwd_level=0)(cstorch.current_pol)() == 1
    assert cstorch.pol(level=0, enable_fwd=False)(cstorch.current_pol)() == 1
    assert cstorch.current_pol() == 1


@pytest.mark.parametrize("levels", [{"level": 3}, {"bwd_level": -1}, {"level": True}])
def test_unknown_levels_are_refused(levels: dict[str, Any]) -> None:
    with raises(ConfigError, "unknown-precision-level"):
        cstorch.pol(**levels)


@pytest.mark.parametrize("program", [0, 1])
def test_level_of_a_module_decides_its_casts(program: Any) -> None:
    """At level 0 a product computes in fp32, at level 2 softmax stays in the half type."""
    backends.csx.precision.optimization_level = program
    try:
        dtype = amp.stream_precision().compute_dtype
        layer, x = nn.Linear(64, 64).to(dtype), torch.randn(2, 64).to(torch.bfloat16)
        with amp.autocast():
            low, high = (cstorch.pol(level=level)(layer)(x) for level in (0, 1))
            soft = [cstorch.pol(level=level)(torch.softmax)(x, -1).dtype for level in (0, 1, 2)]
        wide = nn.functional.linear(x.float(), layer.weight.float(), layer.bias.float())
        assert low.dtype == high.dtype == dtype
        assert torch.equal(low, wide.to(dtype))
        half = (t.bfloat16() for t in (x, layer.weight, layer.bias))
        assert torch.equal(high, nn.functional.linear(*half).to(dtype))
        assert soft == [torch.float32, torch.float32, torch.bfloat16]
    finally:
        backends.reset()


class Mixed(nn.Module):
    """A model whose layers have a level of their own."""

    def __init__(self, level: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.level = level
        self.layer, self.head = nn.Linear(4, 64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = cstorch.pol(level=self.level, bwd_level=0)(self.hidden)(x)
        loss: torch.Tensor = nn.functional.mse_loss(hidden, y)
        return loss

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.head(torch.softmax(self.layer(x), -1))
        return hidden


def test_module_at_its_own_level_trains() -> None:
    """The traced step sees the same casts; no level is that of the program."""
    digests = []
    for level in (None, 1, 2, 0):  # the bits of level 0, half operands in fp32, may be those of 1
        with running_backend() as backend:
            amp.enable_mixed_precision()
            backends.csx.precision.optimization_level = 1
            backend.session.register(Mixed(level))
            assert all(loss > 0 for loss in losses(training_step(backend), executor(2)))
            digests.append(backend.weights_digest())
    assert digests[0] == digests[1] != digests[2]
