"""Training on a staged device: the bits of the same kernels where nothing is copied.

The device is the processor, behind queues that run as late as they may (DeferredQueues): only CUDA
itself is missing. Where torch sees a GPU the same runs are on it, too; they repeat and do not depend
on the shape of the cluster.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import cstorch
from appliance.coordinator.commands import HashWeights, ReadPeakBytes, Run
from appliance.elaboration.elaborate import ClusterSize
from tests.support.roles.deferred_queues import DeferredQueues
from tests.support.roles.local_machine import (
    BF16,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from tests.support.runs.tiny_training import GPT, Shape, init_config, train_on_cluster
from waferstream.core.program.program import ProgramKind

SHALLOW = GPT | {"num_hidden_layers": 1}
SPARSE: dict[str, Any] = {
    "model": SHALLOW,
    "precision": {"fp16_type": "cbfloat16", "loss_scaling_factor": "dynamic"},
    "sparsity": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 1}},
}
DROPOUT: dict[str, Any] = {"model": SHALLOW | {"dropout_rate": 0.2}}
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU of CUDA")


class WithDropout(Regression):
    """A model that also draws random numbers."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of inputs of which half are dropped."""
        return super().forward(torch.nn.functional.dropout(x, 0.5), y)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``device: cuda`` be the processor, behind queues that run late."""
    monkeypatch.setattr("appliance.placement.placer.num_gpus", lambda: 1)
    monkeypatch.setattr("appliance.placement.placer.memory_of_gpus", lambda: [1 << 30])
    monkeypatch.setattr("csnode.devices.device.queues_of_gpu", lambda _: DeferredQueues())


@pytest.mark.usefixtures("staged")
def test_staged_training_has_the_bits_of_the_plain_one() -> None:
    """Sparse weights, a dynamic loss scale, and two systems that check parts of each other's."""
    train = partial(train_on_cluster, init_config(**SPARSE), steps=2)
    assert train(Shape(2, servers=2, verified=0.5, device="cuda")) == train(Shape())


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("num_csx", [1, 2])
@pytest.mark.parametrize("trains", [True, False])
def test_staged_steps_have_the_results_of_plain_ones(trains: bool, num_csx: int) -> None:
    """Losses, emulated time, and the activations in SRAM; with dropout, and clipping by the norm."""
    model, batches = WithDropout(), random_batches(2, rows=10)
    compiled = compile_model(model, batches[0], 5, trains=trains, precision=BF16)
    update = sgd(model, max_gradient_norm=0.1) if trains else None
    found = []
    for device in ("cpu", "cuda"):
        size = ClusterSize(num_csx, lanes=2, activation_bytes=1, device=device)
        installed = installation(compiled, partial(random_batches, 2, 10), update, size)
        cluster = start(installed, model, size)
        steps = cluster.do(Run(ProgramKind.TRAIN if trains else ProgramKind.EVAL, 1, 2))
        held = {role: peaks["activations"] for role, peaks in cluster.do(ReadPeakBytes()).items()}
        found.append((steps, held, cluster.do(HashWeights())))
    assert found[0] == found[1]


@on_a_gpu
@pytest.mark.nightly
@pytest.mark.parametrize("sections", [DROPOUT, SPARSE], ids=["dropout", "sparse"])
def test_training_on_a_gpu_does_not_depend_on_the_shape(sections: dict[str, Any]) -> None:
    """It repeats, too."""
    init = init_config(**sections)

    train = partial(train_on_cluster, init, steps=3)
    digests = {train(Shape(n, servers=n, device="cuda")) for n in (1, 1, 2, 3)}
    assert len(digests) == 1


@on_a_gpu
@pytest.mark.nightly
def test_weights_of_a_gpu_are_close_to_those_of_the_processor() -> None:
    """With the same dropout; other kernels round otherwise."""
    init = init_config(**DROPOUT)
    found = [
        train_on_cluster(init, Shape(device=device), steps=2, inspect=_weights)
        for device in ("cpu", "cuda")
    ]
    for name, weight in found[0].items():
        torch.testing.assert_close(found[1][name], weight, rtol=1e-3, atol=1e-4)


def _weights(backend: cstorch.Backend) -> dict[str, torch.Tensor]:
    assert backend.model is not None
    return {name: value.clone() for name, value in backend.model.state_dict().items()}
