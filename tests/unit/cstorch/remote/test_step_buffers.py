"""Buffers that a step writes, as the user's program sees them."""

from __future__ import annotations

import copy

import torch

import cstorch
from cstorch.trace import TracedStep
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import WaferStreamError

NUM_MICRO_BATCHES = 8


class Counting(Regression):
    """Counts its training micro-batches, and adds the count to its loss in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return self.count.float()
        self.count += 1
        return super().forward(x, y)


def train_step(model: Counting, backend: cstorch.Backend) -> TracedStep:
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> None:
        optimizer.zero_grad()
        compiled(**batch).backward()
        optimizer.step()

    return step


def evaluate(model: Counting, step: TracedStep) -> float:
    """Return the count that an evaluation sees."""
    model.eval()
    (seen,) = losses(step, executor(1))
    model.train()
    return seen


def test_evaluation_reads_what_training_and_the_program_wrote() -> None:
    """Also a program that was compiled when the buffer still was a constant."""
    with running_backend() as backend:
        model = Counting()
        train = train_step(model, backend)
        evaluation = cstorch.trace(lambda batch: model(**batch))
        assert evaluate(model, evaluation) == 0
        for batch in executor(2):
            train(batch)
        assert evaluate(model, evaluation) == 2 * NUM_MICRO_BATCHES
        model.count.fill_(3)
        assert evaluate(model, evaluation) == 3
        model.count = torch.tensor(5)
        assert evaluate(model, evaluation) == 5
        for batch in executor(1):
            train(batch)
        assert model.count.item() == 5 + NUM_MICRO_BATCHES


def test_read_in_the_loop_settles_the_steps() -> None:
    """The value is that after the step just called."""
    with running_backend() as backend:
        model = Counting()
        train, seen = train_step(model, backend), []
        for batch in executor(3, activation_steps=3):
            train(batch)
            seen.append(int(model.count))
        assert seen == [NUM_MICRO_BATCHES * step for step in (1, 2, 3)]
        assert copy.deepcopy(model).count.item() == seen[-1]


def test_buffer_read_after_the_cluster_has_ended_is_refused() -> None:
    """No stale value is shown, and no later backend starts from one."""
    with running_backend() as backend:
        model = Counting()
        train = train_step(model, backend)
        for batch in executor(1):
            train(batch)
    with raises(WaferStreamError, "weight-read-after-shutdown"):
        model.count.item()


def test_a_later_backend_goes_on_with_the_buffers() -> None:
    """A buffer that was read before the end has its value."""
    model = Counting()
    for expected in (1, 2):
        with running_backend() as backend:
            train = train_step(model, backend)
            for batch in executor(1):
                train(batch)
            assert model.count.item() == expected * NUM_MICRO_BATCHES
            assert all(weight.isfinite().all() for weight in model.parameters())


def test_changed_constant_buffer_is_noticed() -> None:
    """A buffer that no step writes is a constant until the program changes it."""
    with running_backend():
        model = Counting().eval()
        cstorch.compile(model)
        step, data = cstorch.trace(lambda batch: model(**batch)), loader()
        assert losses(step, executor(1, data)) == [0.0]
        model.count.fill_(7)
        assert losses(step, executor(1, data)) == [7.0]
