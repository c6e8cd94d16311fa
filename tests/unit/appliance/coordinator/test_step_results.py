"""Results of a step: means of scalars, rows one after the other, means of other tensors."""

from __future__ import annotations

from dataclasses import replace

import torch

from appliance.coordinator.step_results import combine
from tests.support.programs.small_programs import program
from waferstream.core.program.program import Program, TensorResult


def with_tensors(*results: TensorResult) -> Program:
    """Return a program of two micro-batches with a scalar loss and these results."""
    return replace(
        program(), num_micro_batches=2, num_results=1 + len(results), tensor_results=results
    )


def test_combine_averages_scalars_in_index_order() -> None:
    """The sum has the bits of a plain loop."""
    assert combine(with_tensors(), [(0.1,), (0.2,)], {}) == ((0.1 + 0.2) / 2,)


def test_combine_puts_samples_one_after_the_other() -> None:
    """The rows are those of the global batch, in its dtype."""
    rows = torch.arange(8).view(4, 2)
    parts = [(1.0, rows[:2]), (3.0, rows[2:])]
    loss, found = combine(with_tensors(TensorResult(1, "samples")), parts, {})
    assert loss == 2.0
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, rows)


def test_combine_averages_other_tensors() -> None:
    """Floating dtypes stay; integers and booleans become fp32."""
    means = with_tensors(TensorResult(1, "mean"), TensorResult(2, "mean"))
    half = torch.ones(3, dtype=torch.bfloat16)
    parts = [(0.0, half, torch.tensor([True, False])), (0.0, half * 2, torch.tensor([True, True]))]
    _, mean, share = combine(means, parts, {})
    assert isinstance(mean, torch.Tensor)
    assert isinstance(share, torch.Tensor)
    assert torch.equal(mean, half * 1.5)
    assert torch.equal(share, torch.tensor([1.0, 0.5]))


def test_combine_leaves_out_tensors_that_did_not_come_back() -> None:
    """Scalars come back at every step."""
    results = combine(with_tensors(TensorResult(1, "mean")), [(1.0, None), (1.0, None)], {})
    assert results == (1.0, None)
