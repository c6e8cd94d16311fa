"""Random numbers that a traced step draws on the host are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from wsc.core.errors import ApplianceCompilationError


class Scaled(Regression):
    """A model whose input is scaled by a number that a function returns."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x * self.draw(), y)


@pytest.mark.parametrize(
    "draw",
    [random.random, np.random.rand, lambda: np.random.permutation(4)[0]],
    ids=["random", "numpy", "permutation"],
)
def test_host_draw_in_a_traced_step_is_refused(draw: Callable[[], float]) -> None:
    """Every step would get the numbers of the trace."""
    with raises(ApplianceCompilationError, "host-random-in-step") as caught:
        compile_model(Scaled(draw), random_batches(1, 4)[0], 2)
    assert "random" in str(caught.value.value)


def test_draw_by_torch_is_allowed_in_a_traced_step() -> None:
    """It is keyed by step and micro-batch."""
    compile_model(Scaled(lambda: torch.rand(())), random_batches(1, 4)[0], 2)
