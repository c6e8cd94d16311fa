"""Step values: results of a step before the step has run."""

from __future__ import annotations

import math
from operator import add, mul
from typing import Any

import pytest
import torch

from cstorch.loop import StepValue, resolve
from tests.support.errors import raises
from wsc.core.errors import WaferStreamError

USES = {
    "item": lambda value: value.item(),
    "cpu": lambda value: value.cpu(),
    "numpy": lambda value: value.numpy(),
    "tolist": lambda value: value.tolist(),
    "detach": lambda value: value.detach(),
    "float": float,
    "int": int,
    "bool": bool,
    "isnan": math.isnan,
    "format": lambda value: f"{value:.3f}",
    "add": lambda value: add(value, 1),
    "mul": lambda value: mul(value, 2),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_step_value_refuses_to_be_read_early(use: Any) -> None:
    """The remedy names the step closure."""
    with raises(WaferStreamError, "step-value-read-early") as caught:
        use(StepValue(0))
    assert "step_closure" in str(caught.value.remedy)


def test_step_value_can_be_printed() -> None:
    """Its text states its position."""
    assert repr(StepValue(2)) == "<result 2 of the traced step, known after it has run>"


def test_resolve_fills_in_the_values() -> None:
    """Step values in any structure become tensors; everything else stays unchanged."""
    tree = ({"loss": StepValue(1), "n": 3}, [StepValue(0), "text", None])
    named, (first, *others) = resolve(tree, (0.5, 2.0))
    assert torch.equal(named["loss"], torch.tensor(2.0))
    assert torch.equal(first, torch.tensor(0.5))
    assert (named["n"], others) == (3, ["text", None])
