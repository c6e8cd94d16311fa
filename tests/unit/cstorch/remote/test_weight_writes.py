"""Weights of a compiled model, written by the user's program between steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from tests.support.roles.remote_weights import (
    NAME,
    SERVERS,
    counted_reads,
    held,
    regression_of,
    same,
)
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ConfigError


def mul(model: Regression) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def item(model: Regression) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[...] = parameter * 0.5


def data(model: Regression) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.5


def through_numpy(model: Regression) -> None:
    for parameter in model.parameters():
        parameter.detach().numpy()[...] *= 0.5


def load(model: Regression, **options: Any) -> None:
    state = {name: tensor * 0.5 for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, **options)


def load_assigned(model: Regression) -> None:
    load(model, assign=True)


def test_replaced_parameters_count_from_the_next_step(backend: cstorch.Backend) -> None:
    """Steps that were called before have the old ones, although they run later."""
    step, new = training_step(backend, lr=0.5), Regression(depth=3).layers[2].weight.detach()
    for iteration, batch in enumerate(executor(2, activation_steps=2)):
        if iteration == 1:
            regression_of(backend).layers[0].weight = nn.Parameter(new.clone())
        step(batch)
    found = held(backend)
    model = Regression()
    for iteration, batch in enumerate(batches()[:2]):
        if iteration == 1:
            model.layers[0].weight = nn.Parameter(new.clone())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found[name], tensor)


@pytest.mark.parametrize("write", [mul, item, data, through_numpy, load, load_assigned])
@pytest.mark.parametrize("shape", [*nightly(Shape(2)), SERVERS], ids=["one-server", "two-servers"])
def test_write_reaches_memoryx_before_the_next_step(
    write: Callable[[Regression], None], shape: Shape
) -> None:
    """Two steps with halved weights in between are those of plain PyTorch."""
    with running_backend(shape) as backend:
        step = training_step(backend)
        for iteration, batch in enumerate(executor(2, activation_steps=2)):
            if iteration == 1:
                write(regression_of(backend))
            step(batch)
        found = {
            name: tensor.clone() for name, tensor in regression_of(backend).state_dict().items()
        }
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration, batch in enumerate(batches()[:2]):
        if iteration == 1:
            mul(model)
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found[name], tensor)


def test_write_is_seen_by_evaluation_and_checkpoint(
    backend: cstorch.Backend, trained: Regression, tmp_path: Path
) -> None:
    """Both are done by the cluster."""
    with torch.no_grad():
        trained.layers[0].weight.zero_()
    (loss,) = losses(evaluation_step(backend), executor(1))
    expected = copy.deepcopy(trained)(**batches()[0]).item()
    assert loss == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        trained.layers[0].weight.fill_(3)
    cstorch.save({"model": {}}, tmp_path / "c.mdl")
    assert torch.equal(cstorch.load(tmp_path / "c.mdl")["model"][NAME], torch.full((4, 4), 3.0))


def test_load_state_dict_fetches_nothing(
    backend: cstorch.Backend, trained: Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All elements are overwritten, so that the trained values are not needed."""
    fetched = counted_reads(backend, monkeypatch)
    trained.load_state_dict(Regression().state_dict())
    losses(evaluation_step(backend), executor(1))
    assert fetched == []
    assert same(held(backend), Regression().state_dict())


def reshape(model: Regression) -> None:
    model.layers[0].weight.data = torch.zeros(5)


def add(model: Regression) -> None:
    model.extra = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(
    ("change", "code"), [(reshape, "parameter-shape-changed"), (add, "parameters-changed")]
)
def test_change_of_the_parameters_is_refused(
    backend: cstorch.Backend, trained: Regression, change: Callable[[Regression], None], code: str
) -> None:
    """MemoryX holds what the model had when it was compiled."""
    change(trained)
    with raises(ConfigError, code):
        losses(evaluation_step(backend), executor(1, loader()))
