"""A micro-batch between segments: values in, values out, memory counted once."""

import pytest
import torch

from csnode.micro_batch import MicroBatch
from tests.support.small_programs import segment

SEGMENT = segment(
    0,
    inputs=("x",),
    outputs=("double", "triple"),
    gradients=("w",),
    results=((1, "second"), (0, "first")),
)


def kernel(weight, x):
    return 2 * x, 3 * x, weight + 1, torch.tensor(0.25), torch.tensor(4)


def test_what_a_kernel_returns_goes_where_it_belongs():
    """Outputs, then gradients, then results, which are found again by their position."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    batch.run(SEGMENT, kernel, [torch.tensor([5.0])])
    assert batch.values["double"].item() == 2
    assert batch.values["triple"].item() == 3
    assert batch.gradients == {"w": torch.tensor([6.0])}
    assert batch.results == {1: 0.25, 0: 4.0}


def test_gradients_are_those_of_the_last_segment():
    """They leave the node at once; none piles up."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    batch.run(SEGMENT, kernel, [torch.tensor([5.0])])
    batch.run(segment(1, inputs=("double",)), lambda x: (), [])
    assert batch.gradients == {}


def test_a_kernel_that_returns_something_else_is_an_error():
    """Schedule and kernel disagree: nothing is stored under a wrong name."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    with pytest.raises(ValueError, match="zip"):
        batch.run(SEGMENT, lambda *_: (torch.tensor(1.0),), [torch.tensor([5.0])])


def test_memory_is_counted_by_storage():
    """Views of one tensor count once, numbers not at all, dropped values no more."""
    x = torch.zeros(4, 4)
    batch = MicroBatch(0, {"x": x, "row": x[0], "y": torch.zeros(2), "random_key": 7})
    assert batch.num_bytes == 64 + 8
    batch.drop(["x", "y"])
    assert batch.num_bytes == 64
    batch.drop(["row"])
    assert batch.num_bytes == 0
