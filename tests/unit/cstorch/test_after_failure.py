"""What a user's objects are after a fit that has failed: whole, and free for the next one."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends
from cstorch.remote.weights import Weights
from memoryx.store.store import WeightStore
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, loader, losses, training_step
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ProgramOrderError,
    WaferStreamError,
    WeightsLostError,
)

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))
Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


class Classifier(nn.Module):
    """Two layers with batch norm, whose buffers a step writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)
        return output


class Faulty(Classifier):
    """A model with a mistake."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.view(-1, 3))


def good() -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, 4, generator=generator)
    return x, torch.randint(0, 5, (8,), generator=generator)


def mislabelled() -> Iterator[Batch]:
    """Yield two good batches, then one with a label out of range."""
    x, y = good()
    yield from ((x, y), (x, y), (x, y + 70))


def broken() -> Iterator[Batch]:
    yield from (good(), good())
    raise ValueError("the user's loader broke")


def interrupted() -> Iterator[Batch]:
    yield from (good(), good())
    raise KeyboardInterrupt


def trainer(model: nn.Module, optimizer: Any = None, steps: int = 4) -> cstorch.Trainer:
    """Return a trainer with micro-batches of the whole batch, as the plain loop has."""
    backends.csx.performance.micro_batch_size = 8
    return cstorch.Trainer(
        model=model,
        optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.1),
        config=cstorch.CSConfig(max_steps=steps, cluster=LOCAL),
        loss_fn=functional.cross_entropy,
    )


def plain(model: nn.Module, steps: int) -> dict[str, torch.Tensor]:
    """Return what a plain loop makes of a model."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = good()
    for _ in range(steps):
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def assert_same(model: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    found = model.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("source", [mislabelled, broken, interrupted])
def test_model_has_the_weights_of_the_steps_before_the_failure(
    source: Callable[[], Iterator[Batch]],
) -> None:
    """They are read from the model, and the next Trainer goes on with them."""
    model = Classifier()
    with pytest.raises((WaferStreamError, KeyboardInterrupt)):
        trainer(model).fit(source)
    assert_same(model, plain(Classifier(), 2))
    trainer(model, steps=2).fit([good()])
    assert_same(model, plain(Classifier(), 4))


def test_model_with_a_mistake_leaves_nothing_behind() -> None:
    """No cluster was started; the caught error holds the frames of the loop."""
    with pytest.raises(WaferStreamError) as caught:
        trainer(Faulty()).fit([good()])
    model = Classifier()
    trainer(model, steps=2).fit([good()])
    assert_same(model, plain(Classifier(), 2))
    assert caught.value


def test_weights_that_cannot_be_read_are_never_older_ones_unsaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No job has failed: the cluster has ended between two of them."""

    def gone(_weights: Weights) -> None:
        raise ApplianceRuntimeServerError("a role has died", code="role-died")

    model = Classifier()
    trainer(model).fit([good()])
    monkeypatch.setattr(Weights, "fetch", gone)
    with raises(WeightsLostError, "weights-lost"):
        trainer(model)
    monkeypatch.undo()
    model = Classifier()  # the program knows, and starts anew
    trainer(model, steps=2).fit([good()])
    assert_same(model, plain(Classifier(), 2))


def test_weights_of_half_an_update_are_reported_as_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is whole all the same, with the weights that were known before."""
    update = WeightStore.update

    def stop(store: WeightStore, gradients: Any, applied: int) -> None:
        update(store, gradients, applied)
        raise KeyboardInterrupt

    monkeypatch.setattr(WeightStore, "update", stop)
    model = Classifier()
    with caplog.at_level("WARNING", "waferstream"):
        with pytest.raises(KeyboardInterrupt):
            trainer(model).fit([good()])
        monkeypatch.undo()
        trainer(model, steps=2).fit([good()])
    assert len(caplog.records) == 2
    assert_same(model, plain(Classifier(), 2))


def test_failed_trainer_names_the_next_one() -> None:
    """Its cluster has ended."""
    model = Classifier()
    failed = trainer(model)
    with pytest.raises(WaferStreamError):
        failed.fit(broken)
    with raises(ProgramOrderError, "trainer-ended"):
        failed.fit([good()])


def test_error_in_the_loop_of_a_program_frees_the_backend() -> None:
    """Although the exception keeps the frames, and so the loop, of the program."""

    def program() -> None:
        backend = cstorch.backend("CSX", cluster_config=cluster_config(Shape(2)))
        for batch in executor(3):
            training_step(backend)(batch)
            raise ValueError("the program has a mistake")

    kept = []
    for _ in range(2):
        with pytest.raises(ValueError, match="the program has a mistake") as caught:
            program()
        kept.append(caught)
    backend = cstorch.backend("CSX", cluster_config=cluster_config(Shape(2)))
    model = cstorch.compile(Regression(), backend)
    before = copy.deepcopy(model.state_dict())
    losses(training_step(backend), executor(1, loader()))
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert len(kept) == 2


def test_loop_that_was_left_does_not_go_on_beside_another() -> None:
    """The frame of a generator is not that of the program: it may be resumed."""
    backend = cstorch.backend("CSX", cluster_config=cluster_config(Shape(2)))
    step = training_step(backend)
    first = iter(executor(3))

    def begin() -> None:
        step(next(first))

    begin()
    losses(step, executor(1))
    with raises(ProgramOrderError, "loop-ended"):
        next(first)
    assert not hasattr(sys, "ps1")
