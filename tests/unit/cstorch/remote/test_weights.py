"""Weights of a compiled model, read by the user's program between steps."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from appliance.coordinator.commands import LoadWeights
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from tests.support.roles.remote_weights import (
    NAME,
    counted_reads,
    held,
    regression_of,
    same,
    watch_commands,
)
from waferstream.core.errors import ApplianceCompilationError, ConfigError, WaferStreamError

READS: dict[str, Callable[[Regression], torch.Tensor]] = {
    "state_dict": lambda model: model.state_dict()[NAME],
    "parameters": lambda model: next(iter(model.parameters())),
    "numpy": lambda model: torch.from_numpy(model.layers[0].weight.detach().numpy().copy()),
    "data": lambda model: model.layers[0].weight.data,
    "clone": lambda model: model.layers[0].weight.clone(),
    "deepcopy": lambda model: copy.deepcopy(model).layers[0].weight,
    "functional": lambda model: torch.stack([model.layers[0].weight])[0],
    "flat": lambda model: nn.utils.parameters_to_vector(model.parameters())[:16].view(4, 4),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_read_gives_the_trained_value(
    backend: cstorch.Backend, trained: Regression, read: Callable[[Regression], torch.Tensor]
) -> None:
    """Every way to read a parameter returns what MemoryX holds."""
    expected = held(backend)[NAME]
    assert not torch.equal(expected, Regression().state_dict()[NAME])
    assert torch.equal(read(trained), expected)


def test_state_dict_is_fetched_when_it_is_used(
    backend: cstorch.Backend, trained: Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dict itself costs nothing; each tensor is fetched once, until the next step."""
    fetched = counted_reads(backend, monkeypatch)
    state = trained.state_dict()
    assert state[NAME].shape == (4, 4)
    assert fetched == []
    for _ in range(2):
        state[NAME].sum()
    assert fetched == [NAME]


def test_state_dict_follows_later_steps(backend: cstorch.Backend) -> None:
    """As in PyTorch, its tensors are aliases of the parameters."""
    step = training_step(backend)
    losses(step, executor(1))
    state = regression_of(backend).state_dict()
    assert same(state, held(backend))
    losses(step, executor(1))
    assert same(state, held(backend))


@pytest.mark.parametrize("what", ["state_dict", "model"])
def test_torch_save_of_a_trained_model(
    backend: cstorch.Backend, trained: Regression, what: str
) -> None:
    """The file holds ordinary tensors with the trained values."""
    file = io.BytesIO()
    torch.save(trained.state_dict() if what == "state_dict" else trained, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=what == "state_dict")
    state = loaded if what == "state_dict" else loaded.state_dict()
    assert same(state, held(backend))
    assert {type(tensor) for tensor in state.values()} == {torch.Tensor}


def test_weights_read_in_the_loop_include_the_step_just_called() -> None:
    """Steps run when a weight is read, although values come back at the end only."""
    with running_backend() as backend:
        step, seen = training_step(backend), []
        for batch in executor(3, activation_steps=3):
            step(batch)
            seen.append(regression_of(backend).state_dict()[NAME].clone())
        last = backend.weights_digest()
    for count, found in enumerate(seen, start=1):
        with running_backend() as backend:
            losses(training_step(backend), executor(count))
            assert torch.equal(found, held(backend)[NAME])
            assert count < 3 or backend.weights_digest() == last


def test_results_after_reads_in_the_loop(backend: cstorch.Backend) -> None:
    """Closures and results of the loop are those of a loop without reads."""
    step, loop, seen = training_step(backend), executor(3, activation_steps=3), []

    @cstorch.step_closure
    def note(loss: torch.Tensor) -> None:
        seen.append((loss.item(), [result.step for result in loop.results]))

    for batch in loop:
        loss = step(batch)
        regression_of(backend).layers[0].weight.sum()
        note(loss)
    with running_backend_after(backend) as other:
        expected = losses(training_step(other), executor(3, activation_steps=3))
    assert seen == [(expected[0], [1, 2, 3])]


def running_backend_after(backend: cstorch.Backend) -> Any:
    """End a backend and return the context of another one."""
    backend.shutdown()
    return running_backend()


def test_reading_sends_nothing(
    backend: cstorch.Backend, trained: Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only written weights travel."""
    trained.state_dict()[NAME].sum()
    given: list[Any] = []
    watch_commands(backend, monkeypatch, given.append)
    losses(evaluation_step(backend), executor(1))
    assert given
    assert not any(isinstance(command, LoadWeights) for command in given)


def test_restored_weights_can_be_read_before_the_first_step(tmp_path: Path) -> None:
    """They come from the checkpoint; what is written to them replaces it."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        losses(training_step(backend), executor(2))
        cstorch.save({"model": {}}, path)
        saved = held(backend)
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        backend.restore(path)
        assert same(model.state_dict(), saved)
        with torch.no_grad():
            model.get_parameter(NAME).zero_()
        losses(evaluation_step(backend), executor(1))
        assert same(held(backend), {**saved, NAME: torch.zeros(4, 4)})


def test_weight_read_after_shutdown_is_refused() -> None:
    """The trained values ended with the cluster; values read before stay readable."""
    with running_backend() as backend:
        losses(training_step(backend), executor(1))
        model = regression_of(backend)
        before = model.layers[1].weight.clone()
    assert torch.equal(model.layers[1].weight, before)
    with raises(WaferStreamError, "weight-read-after-shutdown"):
        model.state_dict()[NAME].sum()
    with running_backend() as backend, raises(WaferStreamError, "weight-read-after-shutdown"):
        cstorch.compile(model, backend)


def test_weight_used_beside_its_module_is_refused(backend: cstorch.Backend) -> None:
    """In a trace it would be a constant with an old value."""
    model = cstorch.compile(Regression(), backend)
    weight = model.get_parameter(NAME)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch) + weight.sum()
        return loss

    with raises(ApplianceCompilationError, "weight-not-through-module"):
        losses(step, executor(1))


def test_parameter_without_a_shape_is_refused(backend: cstorch.Backend) -> None:
    """A lazy module has to see a batch first."""
    model = nn.LazyLinear(3)
    with raises(ConfigError, "parameter-uninitialized"):
        cstorch.compile(model, backend)
    model(torch.ones(2, 4))
    cstorch.compile(model, backend)


def test_parameter_of_another_class_is_refused(backend: cstorch.Backend) -> None:
    """Its values could not be fetched."""
    model = Regression()

    class Special(nn.Parameter):
        pass

    model.layers[0].weight = Special(torch.zeros(4, 4))
    with raises(ConfigError, "parameter-class-unsupported"):
        cstorch.compile(model, backend)
