"""Checks of a program are made while the step runs; other conditions on values are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError

Check = Callable[[torch.Tensor], None]


def raising(x: torch.Tensor) -> None:
    if x is not None and x.max() >= 4:
        raise ValueError(f"{x.max()} is too large")


def raising_unless(x: torch.Tensor) -> None:
    if not (x < 4).all():
        raise ValueError


def raising_for_either(x: torch.Tensor) -> None:
    if x.min() < -9 or x.max() >= 4:
        raise ValueError


def of_torch(x: torch.Tensor) -> None:
    torch._check_tensor_all(x < 4, lambda: f"{x.max()}")


class Net(nn.Module):
    def __init__(self, check: Check) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self._check = check

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check(x)
        loss: torch.Tensor = self.linear(x).square().mean()
        return loss


def trained(check: Check, x: torch.Tensor) -> list[float]:
    """Train two steps on two systems, on micro-batches of two samples."""
    torch.manual_seed(0)
    model = Net(check)
    with running_backend(Shape(2)) as backend:
        backends.csx.performance.micro_batch_size = 2
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)

        @cstorch.trace
        def step(batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = compiled(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return losses(step, executor(2, loader(lambda: [x, x])))


def plain(x: torch.Tensor) -> list[float]:
    torch.manual_seed(0)
    model = Net(lambda _: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(2):
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize("check", [raising, raising_unless, raising_for_either, of_torch])
def test_check_of_data_is_made_while_the_step_runs(check: Check) -> None:
    x = torch.arange(18.0).reshape(6, 3) / 5
    assert trained(check, x) == pytest.approx(plain(x))
    x[5, 2] = 4.0  # in one micro-batch of three
    with pytest.raises(WaferStreamError) as caught:
        trained(check, x)
    assert "test_value_checks.py" in str(caught.value)


def choosing(x: torch.Tensor) -> None:
    if x.max() >= 4:
        x.mul(2)


def raising_or_choosing(x: torch.Tensor) -> None:
    if x.max() >= 4:
        x.mul(2)
        raise ValueError


def raising_if_both(x: torch.Tensor) -> None:
    if x.max() >= 4 and x.min() < 0:
        raise ValueError


def printing(x: torch.Tensor) -> None:
    print(f"largest: {x.max()}")


@pytest.mark.parametrize("check", [choosing, raising_or_choosing, raising_if_both, printing])
def test_condition_that_decides_more_is_refused(check: Check) -> None:
    code = "tensor-read-in-trace" if check is printing else "op-depends-on-values"
    with raises(ApplianceCompilationError, code):
        trained(check, torch.zeros(6, 3))
