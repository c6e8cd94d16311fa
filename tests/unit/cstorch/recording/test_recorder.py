"""The update that a traced step records: optimizer and schedulers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import cstorch
from cstorch.optim.lr_scheduler import LRScheduler
from cstorch.trace import TracedStep
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ApplianceCompilationError

Batch = dict[str, torch.Tensor]
MakeStep = Callable[[cstorch.Backend], TracedStep]


def test_gradients_without_an_optimizer_are_refused(backend: cstorch.Backend) -> None:
    """A training step that trains nothing is a mistake."""
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss = model(**batch)
        loss.backward()
        return loss

    with raises(ApplianceCompilationError, "gradients-without-optimizer"):
        losses(step, executor())


def test_two_optimizers_are_refused(backend: cstorch.Backend) -> None:
    """A step has one update."""
    model = cstorch.compile(Regression(), backend)
    optimizers = [cstorch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]

    @cstorch.trace
    def step(batch: Batch) -> None:
        model(**batch).backward()
        for optimizer in optimizers:
            optimizer.step()

    with raises(ApplianceCompilationError, "optimizer-stepped-twice"):
        losses(step, executor())


def step_and_scheduler(backend: cstorch.Backend) -> tuple[TracedStep, LRScheduler]:
    """Return a step with momentum whose learning rate falls by 0.01 a step, and its scheduler."""
    model = cstorch.compile(backend.model or Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
    scheduler = cstorch.optim.lr_scheduler.LinearLR(
        optimizer, initial_learning_rate=0.1, end_learning_rate=0.0, total_iters=10
    )

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return step, scheduler


def test_scheduler_before_the_optimizer_is_refused(backend: cstorch.Backend) -> None:
    """In torch the update would take the value of the next step."""
    model = cstorch.compile(Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
    scheduler = cstorch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 3)

    @cstorch.trace
    def step(batch: Batch) -> None:
        model(**batch).backward()
        scheduler.step()
        optimizer.step()

    with raises(ApplianceCompilationError, "scheduler-before-optimizer"):
        losses(step, executor())


def test_step_that_computes_nothing_is_refused(backend: cstorch.Backend) -> None:
    """What it returns is no tensor of the step."""
    cstorch.compile(Regression(), backend)
    with raises(ApplianceCompilationError, "step-without-ops"):
        losses(cstorch.trace(lambda batch: str(len(batch))), executor())


def scheduled_step(backend: cstorch.Backend) -> TracedStep:
    """Return a traced step with momentum and a falling learning rate."""
    return step_and_scheduler(backend)[0]


@pytest.mark.parametrize("make_step", [partial(training_step, momentum=0.9), scheduled_step])
def test_optimizer_state_survives_another_loader(
    make_step: Callable[[cstorch.Backend], TracedStep],
) -> None:
    """Momentum goes on when the next epoch comes from another loader."""

    def digest(*sources: Callable[[], Any]) -> str:
        with running_backend() as backend:
            step = make_step(backend)
            for source in sources:
                losses(step, executor(3 // len(sources), loader(source)))
            return backend.weights_digest()

    same = [lambda i=i: batches() for i in range(3)]
    assert digest(*same) == digest(batches)


def test_scheduler_counts_the_steps_done(backend: cstorch.Backend) -> None:
    """The count does not depend on how often the step was recorded."""
    step, scheduler = step_and_scheduler(backend)
    seen = []

    @cstorch.step_closure
    def note() -> None:
        seen.append(scheduler.get_last_lr()[0])

    for loop in (executor(4, activation_steps=2), executor(1)):
        for batch in loop:
            step(batch)
            note()
    assert seen == pytest.approx([0.08, 0.06, 0.05])
    assert scheduler.state_dict() == {"last_epoch": 5, "_last_lr": [0.05]}


def stepped_by(make_scheduler: Callable[[cstorch.optim.Optimizer], LRScheduler]) -> MakeStep:
    """Return a function that makes a traced step with momentum and a learning-rate scheduler."""

    def make(backend: cstorch.Backend) -> TracedStep:
        model = cstorch.compile(backend.model or Regression(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
        scheduler = make_scheduler(optimizer)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        return step

    return make


def test_lambda_schedule_covers_every_loop() -> None:
    """A longer table for a later loop keeps momentum; the values are those of the formula."""
    make_lambda = stepped_by(
        lambda o: cstorch.optim.lr_scheduler.LambdaLR(o, 0.1, lr_lambda=lambda t: 0.5**t)
    )
    make_formula = stepped_by(lambda o: cstorch.optim.lr_scheduler.MultiplicativeLR(o, 0.1, 0.5))

    def digest(make: MakeStep, *counts: int) -> str:
        with running_backend() as backend:
            step, data = make(backend), loader()
            for count in counts:
                losses(step, executor(count, data))
            return backend.weights_digest()

    expected = digest(make_formula, 6)
    assert digest(make_lambda, 6) == expected
    assert digest(make_lambda, 1, 2, 3) == expected


def test_closures_receive_the_learning_rate_of_each_step(backend: cstorch.Backend) -> None:
    """Inside the trace it is a placeholder, as the step is recorded once."""
    model = cstorch.compile(Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.25)
    arguments = {"initial_learning_rate": 0.5, "end_learning_rate": 0.0, "total_iters": 4}
    scheduler = cstorch.optim.lr_scheduler.LinearLR(optimizer, **arguments)
    seen = []

    @cstorch.step_closure
    def note(rate: torch.Tensor, decay: torch.Tensor) -> None:
        seen.append((rate.item(), decay.item()))

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        group = optimizer.param_groups[0]
        note(group["lr"], group["weight_decay"])
        scheduler.step()
        return loss

    losses(step, executor(3))
    assert seen == [(0.5, 0.25), (0.375, 0.25), (0.25, 0.25)]
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_a_step_cannot_compute_with_the_learning_rate(backend: cstorch.Backend) -> None:
    model = cstorch.compile(Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss * optimizer.param_groups[0]["lr"]

    with raises(ApplianceCompilationError, "hyper-parameter-in-trace"):
        losses(step, executor(1))
    assert optimizer.param_groups[0]["lr"] == 0.5
