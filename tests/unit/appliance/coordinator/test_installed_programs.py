"""The coordinator's buffers: updates in index order, values in and out, the length of jobs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from appliance.coordinator.commands import LoadWeights, ReadWeights, Run
from appliance.coordinator.coordinator import Coordinator
from appliance.coordinator.installed_programs import MOST_BYTES, steps_per_job
from appliance.elaboration.elaborate import ClusterSize
from tests.support.programs.small_programs import program
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from waferstream.core.program.program import ProgramKind, StepState, TensorSpec

source = partial(random_batches, 3, 10)


class Tracking(Regression):
    """Counts micro-batches, and keeps a sum in which their order matters."""

    def __init__(self) -> None:
        super().__init__()
        self.order: torch.Tensor
        self.count: torch.Tensor
        self.register_buffer("order", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.order = self.order * 0.5 + x.mean(0)
        self.count += 1
        return super().forward(x, y)


def cluster(size: ClusterSize) -> Coordinator:
    model = Tracking()
    compiled = compile_model(model, source()[0], 5)
    running = start(installation(compiled, source, sgd(model), size), model, size)
    running.do(LoadWeights(dict(model.named_buffers())))
    return running


def test_updates_follow_the_index_of_the_micro_batch() -> None:
    """Every cluster has the buffers of a plain loop over the micro-batches."""
    order = torch.zeros(4)
    for batch in source():
        for x in batch["x"].split(2):
            order = order * 0.5 + x.mean(0)
    for size in (ClusterSize(1), ClusterSize(3, lanes=2)):
        running = cluster(size)
        running.do(Run(ProgramKind.TRAIN, 1, 3))
        found = running.do(ReadWeights(["order", "count", "layers.0.bias"]))
        assert np.array_equal(found["order"], order.numpy())
        assert found["count"] == 15
        assert found["layers.0.bias"].shape == (4,)


def test_contributions_bound_the_steps_of_a_job() -> None:
    """A program without state has jobs of any length."""
    assert steps_per_job(program()) is None
    spec = TensorSpec("c", (MOST_BYTES // 4 // 5 // 10,), "float32")
    assert steps_per_job(replace(program(), state=StepState(contributions=(spec,)))) == 10
    large = replace(spec, shape=(MOST_BYTES,))
    assert steps_per_job(replace(program(), state=StepState(contributions=(large,)))) == 1
