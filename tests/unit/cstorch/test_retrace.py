"""The option to run the Python of a traced step in every iteration."""

from __future__ import annotations

from unittest.mock import Mock

import torch
from torch import nn

import cstorch
from cstorch import backends
from cstorch.trace import TracedStep
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, running_backend
from waferstream.core.errors import ApplianceCompilationError

Batch = dict[str, torch.Tensor]


class Net(nn.Module):
    """Random numbers, and buffers that a step writes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        predicted = self.layer(nn.functional.dropout(self.norm(x), 0.5))
        return nn.functional.mse_loss(predicted, y)


def traced(backend: cstorch.Backend, seen: list[int]) -> TracedStep:
    """Return a step that counts its runs in Python, and hands the count to a closure."""
    torch.manual_seed(3)
    model = cstorch.compile(Net(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
    scheduler = cstorch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 0.01, 4)
    runs = Mock()  # whose count is no state of the program

    @cstorch.step_closure
    def note(iteration: int, loss: torch.Tensor) -> None:
        assert loss.isfinite()
        seen.append(iteration)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        runs()
        loss: torch.Tensor = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        note(runs.call_count, loss)
        return loss

    return step


def test_python_runs_in_every_iteration_and_changes_no_bit() -> None:
    """The closures of the step get what its Python gives them now."""
    digests, counts = [], []
    for retraces in (False, True):
        seen: list[int] = []
        with running_backend() as backend:
            backends.csx.debug.retrace_every_iteration = retraces
            backends.csx.performance.micro_batch_size = 2
            step = traced(backend, seen)
            for batch in executor(4, activation_steps=2):
                step(batch)
            digests.append(backend.weights_digest())
        counts.append(seen)
    assert digests[0] == digests[1]
    assert counts == [[3, 3], [3, 7]]  # the first step, and each retrace, takes two runs


def test_step_with_other_ops_is_refused(backend: cstorch.Backend) -> None:
    """A number of the host that changes is another program."""
    backends.csx.debug.retrace_every_iteration = True
    backends.csx.performance.micro_batch_size = 2
    model = cstorch.compile(Net(), backend)
    factors = {"now": 1.0}

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch) * factors["now"]
        return loss

    with raises(ApplianceCompilationError, "step-ops-changed"):
        for batch in executor(3):
            step(batch)
            factors["now"] *= 2
