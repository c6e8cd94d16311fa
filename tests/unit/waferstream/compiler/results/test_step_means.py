"""Means over steps: constant within a step, and equal for every cut of the batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.results.step_means import StepMean, close_step
from waferstream.core.program.program import StepMeanSpec

ROWS = torch.tensor([[1.0, 8.0], [3.0, 2.0], [2.0, 2.0], [6.0, 4.0]])


def added(mean: StepMean, *sizes: int) -> StepMean:
    """Add all rows, cut into parts of these sizes."""
    for part in ROWS.split(sizes):
        mean.add(part.sum(0), torch.tensor(float(len(part))))
    return mean


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (3, 1), (1, 1, 1, 1)])
def test_value_changes_when_the_step_is_done(sizes: tuple[int, ...]) -> None:
    """It is the weighted mean of all parts, averaged with the value before."""
    mean = StepMean(2, momentum=0.75)
    for step, expected in enumerate(([0.75, 1.0], [1.3125, 1.75]), start=1):
        before = mean.value.clone()
        added(mean, *sizes)
        assert torch.equal(mean.value, before)
        close_step(nn.Sequential(mean))
        assert mean.value.tolist() == expected
        assert (int(mean.num_steps), float(mean.weight), float(mean.total.sum())) == (step, 0, 0)


def test_step_without_weight_keeps_the_value() -> None:
    """As one whose images have no hidden patch."""
    mean = added(StepMean(2, momentum=0.5), 4)
    mean.close()
    before = mean.value.clone()
    mean.close()
    assert torch.equal(mean.value, before)
    mean.reset()
    assert all(not buffer.any() for buffer in mean.buffers())


def test_traced_buffers_know_the_means() -> None:
    """What changes at the end of a step is no constant of its program."""
    model = nn.ModuleDict({"a": StepMean(2, 0.5), "b": nn.BatchNorm1d(2)})
    buffers = TracedBuffers({"": model})
    spec = StepMeanSpec("a.value", "a.total", "a.weight", "a.num_steps", 0.5)
    assert buffers.state == {"a.value", "a.num_steps"}
    assert buffers.means_among({"a.total", "a.weight"}) == (spec,)
    assert buffers.means_among({"b.running_mean"}) == ()
