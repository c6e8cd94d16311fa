"""Values of the whole batch are computed once for a step, and cut for each micro-batch."""

from dataclasses import replace

import torch

from appliance.elaboration.elaborate import ClusterSize
from appliance.input.whole_values import WholeValues
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
)
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import TensorSpec

TEXT = """
def forward(self, x, y):
    return (torch.ops.aten.repeat_interleave.self_int(x, 2), torch.ops.aten.sum.default(y))
"""
BATCH = [torch.arange(4.0), torch.ones(4)]


def values_of_two() -> WholeValues:
    """Return those of two micro-batches of two samples: two rows for each, and a sum."""
    compiled = compile_model(Regression(), random_batches(1, 4)[0], 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    inputs = (*installed.program.inputs, TensorSpec("whole_0", (4,), "float32"))
    whole = (TensorSpec("whole_1", (), "float32"),)
    program = replace(installed.program, inputs=inputs, num_cut=1, whole=whole)
    return WholeValues(replace(installed, program=program, whole=KernelSource(TEXT, {}, {})))


def test_values_with_rows_are_cut_and_others_are_given_whole() -> None:
    """The first two samples have four rows."""
    rows, total = values_of_two().of(1, 1, BATCH)
    assert torch.equal(rows, torch.tensor([2.0, 2.0, 3.0, 3.0]))
    assert total == 4.0


def test_values_of_a_step_are_computed_once_until_it_is_dropped() -> None:
    """A step reads the batch that it had when it was first asked for."""
    values = values_of_two()
    values.of(1, 0, BATCH)
    other = [BATCH[0], 2 * BATCH[1]]
    assert values.of(1, 1, other)[1] == 4.0
    values.drop_before(2)
    assert values.of(1, 1, other)[1] == 8.0


def test_program_without_values_of_the_batch_gets_none() -> None:
    """Nothing is computed."""
    compiled = compile_model(Regression(), random_batches(1, 4)[0], 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    assert WholeValues(installed).of(1, 0, BATCH) == []
