"""Modules, losses and functions of PyTorch train on a local cluster as in a plain loop.

And each of their ops takes emulated time, which needs the same programs.
"""

from __future__ import annotations

import pytest

from tests.support.plain_torch.torch_case_steps import check_step, compiled
from tests.support.plain_torch.torch_cases import Case
from tests.support.plain_torch.torch_function_cases import FUNCTION_CASES
from tests.support.plain_torch.torch_nn_cases import MODULE_CASES
from tests.support.timing.op_costs import check_costs

EVERY = pytest.mark.parametrize(
    "case", [*MODULE_CASES, *FUNCTION_CASES], ids=lambda case: case.name
)


@EVERY
def test_torch_nn_trains_as_in_a_plain_loop(case: Case) -> None:
    """Forward, backward and update give the same bits."""
    check_step(case)


@EVERY
def test_every_op_of_torch_nn_costs_cycles(case: Case) -> None:
    """Forward and backward; only views cost nothing."""
    check_costs(compiled(case).program)
