"""Random numbers that a traced step draws on the host are refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.support.errors import raises
from waferstream.compiler.capture.host_draws import refuse_host_draws
from waferstream.core.errors import ApplianceCompilationError


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
