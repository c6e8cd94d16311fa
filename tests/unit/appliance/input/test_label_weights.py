"""The input worker counts the labels of a global batch once for all its micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from appliance.elaboration.elaborate import ClusterSize
from appliance.input.label_weights import LabelWeights
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
)
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.label_means import LabelMean

COUNT = KernelSource("def forward(self, x):\n    return [x.sum()]\n", {}, {})
STEPS = {1: (1.0, 3.0), 2: (0.0, 5.0)}


class Asked:
    """Inputs of the micro-batches of one step; records which were read."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.read: list[int] = []

    def __call__(self, micro_batch: int) -> Sequence[torch.Tensor]:
        self.read.append(micro_batch)
        return [torch.tensor(STEPS[self.step][micro_batch])]


def weights_of_two(*means: LabelMean) -> LabelWeights:
    compiled = compile_model(Regression(), random_batches(1, 4)[0], 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    program = replace(installed.program, label_means=means)
    return LabelWeights(replace(installed, program=program, label_counts=COUNT if means else None))


def test_label_weights_count_a_step_once() -> None:
    """All micro-batches are read at the first call, none afterwards until the step is dropped."""
    weights = weights_of_two(LabelMean(0, results=(0,), is_loss=False))
    one, two = Asked(1), Asked(2)
    assert weights.of(1, 1, one) == (1.5,)
    assert weights.of(2, 0, two) == (0.0,)
    assert weights.of(1, 0, one) == (0.5,)
    assert one.read == two.read == [0, 1]
    weights.drop_before(2)
    weights.of(1, 0, one)
    weights.of(2, 1, two)
    assert one.read == [0, 1, 0, 1]
    assert two.read == [0, 1]


def test_label_weights_of_a_program_without_label_means_read_nothing() -> None:
    """There is nothing to count."""
    asked = Asked(1)
    assert weights_of_two().of(1, 0, asked) == ()
    assert asked.read == []
