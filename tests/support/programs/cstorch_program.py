"""Parts of a small user's program: a backend, a traced step, a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

import cstorch
from appliance.coordinator.cluster import Cluster
from cstorch import amp, backends
from cstorch.trace import TracedStep
from tests.support.roles.local_machine import Regression, random_batches
from tests.support.runs.tiny_training import Shape, cluster_config

ROWS = 8
TWO_SYSTEMS = Shape(2)
batches = partial(random_batches, 3, ROWS)


@contextmanager
def running_backend(
    shape: Shape = TWO_SYSTEMS, device: str = "CSX", **options: Any
) -> Iterator[cstorch.Backend]:
    """Make the backend of this process; shut it down and reset all flags afterwards."""
    options.setdefault("cluster_config", cluster_config(shape))
    backend = cstorch.backend(device, **options)
    amp.enable_mixed_precision(False)
    try:
        yield backend
    finally:
        backend.shutdown()
        backends.reset()


def cluster_of(backend: cstorch.Backend) -> Cluster:
    """Return the running cluster of a backend."""
    assert backend.running_cluster is not None
    return backend.running_cluster


def model_of(backend: cstorch.Backend) -> torch.nn.Module:
    """Return the model of a backend."""
    assert backend.model is not None
    return backend.model


def loader(source: Callable[..., Any] = batches) -> cstorch.utils.data.DataLoader:
    """Return a DataLoader over the batches that a function returns."""
    return cstorch.utils.data.DataLoader(source)


def executor(
    num_steps: int | None = 2, data: cstorch.utils.data.DataLoader | None = None, **options: Any
) -> cstorch.utils.data.DataExecutor:
    """Return a loop of ``num_steps`` steps."""
    data = loader() if data is None else data
    return cstorch.utils.data.DataExecutor(data, num_steps, **options)


def training_step(
    backend: cstorch.Backend,
    before_update: Callable[[torch.nn.Module], object] = lambda model: None,
    **sgd: float,
) -> TracedStep:
    """Return a traced step that trains the backend's model, or a new ``Regression``."""
    model = cstorch.compile(backend.model or Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), **{"lr": 0.1, **sgd})

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        loss.backward()
        before_update(model)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def evaluation_step(backend: cstorch.Backend) -> TracedStep:
    """Return a traced step that evaluates the loss."""
    model = cstorch.compile(backend.model or Regression(), backend)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        return loss

    return step


def losses(step: TracedStep, loop: cstorch.utils.data.DataExecutor) -> list[float]:
    """Run a loop; return the loss of every activation step as a closure receives it."""
    seen: list[float] = []

    @cstorch.step_closure
    def note(loss: torch.Tensor) -> None:
        seen.append(loss.item())

    for batch in loop:
        note(step(batch))
    return seen


def run(loop: cstorch.utils.data.DataExecutor, body: Callable[[Any], object]) -> None:
    """Run ``body`` on every batch of a loop."""
    for batch in loop:
        body(batch)
