"""``cstorch.simulate``: the report of ``--simulate`` from a model and a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression, random_batches
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.core.errors import ConfigError
from waferstream.simulation.program import Simulation

BATCH = (torch.zeros(24, 8), torch.zeros(24, dtype=torch.int64))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture(scope="module")
def simulated() -> Simulation:
    found: Simulation = cstorch.simulate(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
        BATCH,
        num_csx=[4, 1, 2],
        loss_fn=nn.CrossEntropyLoss(),
    )
    return found


def test_simulate_predicts_every_number_of_systems(simulated: Simulation) -> None:
    rates = [point.emulated.samples_per_s for point in simulated.points]
    assert [point.num_csx for point in simulated.points] == [1, 2, 4]
    assert rates == sorted(rates)
    assert simulated.result.model.parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert simulated.result.tokens_per_sample is None
    text = str(simulated)
    assert "Sequential, 212 parameters, batch of 24 samples, on CS-2" in text
    assert "AdamW" in text
    assert "4 x CS-2 in detail" in text


def test_weak_scaling_gives_every_system_the_batch() -> None:
    """Two samples are enough for four systems, whose rate is higher than that of one."""
    batch = (torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64))
    given = {"loss_fn": nn.CrossEntropyLoss(), "weak_scaling": True}
    found = cstorch.simulate(nn.Linear(8, 4), batch, [1, 4], **given)
    one, four = (point.emulated for point in found.points)
    assert found.result.weak
    assert four.samples_per_s > one.samples_per_s
    assert four.samples_per_s * four.step_ps == pytest.approx(4 * one.samples_per_s * one.step_ps)


def rising(step: torch.Tensor) -> float:
    """Return the share of zeros of a schedule that is a function of the step."""
    return min(0.09 * float(step), 0.9)


def test_stated_step_of_a_sparse_schedule_is_simulated() -> None:
    """By default the first one, or the mean over the stated steps; the schedule may be code."""
    model, batch = nn.Linear(512, 512, bias=False), (torch.zeros(4, 512), torch.zeros(4, 512))
    pruned = cstorch.sparse.GMP(rising, update={"freq": 1})

    def simulated_ps(**options: Any) -> int:
        given = {"loss_fn": nn.MSELoss(), "sparsity": pruned, **options}
        found = cstorch.simulate(model, batch, **given)
        return int(found.points[0].emulated.step_ps)

    first, mean, late = (
        simulated_ps(**options) for options in ({}, {"num_steps": 20}, {"sparsity_step": 11})
    )
    assert first > mean > late
    assert simulated_ps(sparsity=0.9) == simulated_ps(sparsity={"sparsity": 0.9})
    with raises(ConfigError, "sparsity-without-model"):  # it was applied to no model
        pruned.assigned()
    with raises(ConfigError, "sparsity-step-beyond-run"):
        simulated_ps(num_steps=20, sparsity_step=21)
    with raises(ConfigError, "mask-without-values"):
        simulated_ps(sparsity=cstorch.sparse.Static(0.5, init_method=lambda p, _: p != 0))


def test_simulate_leaves_the_model_to_be_trained() -> None:
    model = nn.Linear(8, 4)
    before = model.weight.detach().clone()
    cstorch.simulate(model, BATCH, loss_fn=nn.CrossEntropyLoss(), optimizer=sgd)
    assert torch.equal(model.weight, before)
    assert model.weight.device.type == "cpu"
    nn.functional.cross_entropy(model(BATCH[0]), BATCH[1]).backward()
    assert model.weight.grad is not None


class Shifted(nn.Module):
    """Adds a buffer to the input, which lies on a real device, before the weights are used."""

    def __init__(self) -> None:
        super().__init__()
        self.shift: torch.Tensor
        self.register_buffer("shift", torch.arange(8.0))
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x + self.shift * torch.arange(8))


def test_model_and_batch_may_be_on_the_meta_device() -> None:
    rates = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            batch = (torch.zeros(24, 8), torch.zeros(24, dtype=torch.int64))
            model = net()
        found = cstorch.simulate(model, batch, loss_fn=nn.CrossEntropyLoss())
        rates.append(found.points[0].emulated.samples_per_s)
    assert rates[0] == rates[1]


def test_simulate_takes_a_model_with_buffers() -> None:
    model = Shifted()
    found = cstorch.simulate(model, BATCH, loss_fn=nn.CrossEntropyLoss())
    assert found.result.model.parameters == 8 * 4 + 4
    assert torch.equal(model.shift, torch.arange(8.0))


class Closure(nn.Module):
    """Calls its layers through a function that is no method, as a block of minGPT does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        layers = self.layers

        def through(x: torch.Tensor) -> Any:
            return layers(x)

        self.through: Callable[[torch.Tensor], Any] = through

    def forward(self, x: torch.Tensor) -> Any:
        return self.through(x)


def test_function_of_a_module_uses_the_weights_that_are_simulated() -> None:
    found = [
        cstorch.simulate(model, BATCH, loss_fn=nn.CrossEntropyLoss()).points[0].emulated
        for model in (Closure(), Closure().layers)
    ]
    assert found[0] == found[1]


class Words(nn.Module):
    """A model of another project: its own names for a batch, (logits, loss) as its output."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 8)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> Any:
        logits = self.table(idx)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_batch_of_integers_is_counted_in_tokens() -> None:
    rows = torch.zeros(24, 6, dtype=torch.int64)
    result = cstorch.simulate(Words(), {"idx": rows, "targets": rows}).result
    assert result.tokens_per_sample == 6
    prediction = result.points[0].prediction
    assert prediction is not None
    assert prediction.tokens_per_s == 6 * result.points[0].emulated.samples_per_s


def sgd(parameters: Any) -> Any:
    return cstorch.optim.SGD(parameters, lr=0.1)


class Scores(Regression):
    """Adds products of all vectors of a group of samples, of which torch copies more than one."""

    def __init__(self, group: int) -> None:
        super().__init__(width=6)
        self.group_of_samples = group

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = self.layers[0](x).unflatten(0, (-1, self.group_of_samples)).unflatten(-1, (2, 3))
        vectors = parts.transpose(1, 2).flatten(0, 1)
        return super().forward(x, y) + (vectors @ vectors.transpose(1, 2)).square().mean()


@pytest.mark.parametrize(("group", "size", "num_csx"), [(1, 1, 5), (2, 2, 1), (3, 6, 2)])
def test_simulated_steps_take_as_long_as_steps_of_training(
    group: int, size: int, num_csx: int
) -> None:
    """To the picosecond; also for micro-batches of one group, of which ops are left out."""
    batches = random_batches(2, 12, width=6)
    config = cluster_config(Shape(num_csx))
    cstorch.amp.enable_mixed_precision(False)
    try:
        cstorch.backends.csx.performance.micro_batch_size = size
        found = cstorch.simulate(
            Scores(group), batches[0], num_csx, optimizer=sgd, cluster=config.cluster
        )
    finally:
        cstorch.backends.reset()
    with running_backend(cluster_config=config) as backend:
        cstorch.backends.csx.performance.micro_batch_size = size
        cstorch.compile(Scores(group), backend)
        losses(training_step(backend), executor(2, loader(lambda: batches)))
        trained_ps = backend.session.timed.attribution.total_ps
    prediction = found.points[0].prediction
    assert prediction is not None
    first, *others = prediction.steps_ps
    assert trained_ps == first + (others or [first])[0]


def test_simulate_refuses_to_cut_groups() -> None:
    """Before the capture: three samples of a batch of 24 are not four."""
    with raises(ConfigError, "group-cut"):
        cstorch.simulate(Scores(4), random_batches(1, 24, width=6)[0])


@pytest.mark.parametrize(
    ("batch", "num_csx", "code"),
    [
        (BATCH, 0, "out-of-range"),
        (BATCH, [], "out-of-range"),
        (BATCH, [1, 2049], "out-of-range"),
        (BATCH, [1, "two"], "out-of-range"),
        (BATCH, True, "out-of-range"),
        ({}, 1, "batch-without-tensor"),
        (BATCH, [1, 64], "batch-below-systems"),
        (BATCH[0], 1, "loss-not-scalar"),
    ],
)
def test_simulate_explains_wrong_arguments(batch: Any, num_csx: Any, code: str) -> None:
    with raises(ConfigError, code):
        cstorch.simulate(nn.Linear(8, 4), batch, num_csx)


def test_simulate_needs_a_process_without_backend() -> None:
    backend = cstorch.backend("CSX")
    try:
        with raises(ConfigError, "simulation-beside-backend"):
            cstorch.simulate(nn.Linear(8, 4), BATCH)
    finally:
        backend.shutdown()
