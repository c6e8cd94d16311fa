"""Ops that keep a loss within limits run on the loss of the batch."""

from dataclasses import replace

import pytest

from appliance.coordinator.installed_programs import LossGuards
from appliance.elaboration.elaborate import ClusterSize
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    compiled_regression,
    installation,
)
from waferstream.core.errors import DataError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import Program

CLAMP = """
def forward(self, x):
    return (torch.ops.aten.clamp.default(x, None, 2.0),)
"""


def guards() -> tuple[LossGuards, Program]:
    """Return the guards of a program whose loss is at most 2."""
    compiled = compiled_regression(4, 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    program = replace(installed.program, guards=("clamp, model.py:7: loss.clamp(max=2)",))
    found = LossGuards()
    found.install(replace(installed, program=program, guards=(KernelSource(CLAMP, {}, {}),)))
    return found, program


@pytest.mark.parametrize("loss", [-5.0, 0.1, 2.0])
def test_loss_within_limits_passes(loss: float) -> None:
    """The op leaves it as it is."""
    found, program = guards()
    found.check(program, [loss], 1)


@pytest.mark.parametrize("loss", [2.1, float("inf"), float("nan")])
def test_loss_beyond_limits_names_the_op_and_its_line(loss: float) -> None:
    """Its gradient would be another one."""
    found, program = guards()
    with raises(DataError, "loss-out-of-limits") as caught:
        found.check(program, [loss], 7)
    assert caught.value.where == "step 7: clamp, model.py:7: loss.clamp(max=2)"
