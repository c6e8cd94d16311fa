"""The check of the first steps: equal or close on right programs, different on wrong ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends
from memoryx.optim.rule import RULES
from tests.support.errors import raises
from waferstream.core.errors import CheckError

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))
BATCH_SIZE = 12


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Compute in fp32, four samples at a time; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 4
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


class Net(nn.Module):
    """A network with a norm over the batch and with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.dropout(self.norm(self.first(x)), 0.25)
        scores: torch.Tensor = self.last(hidden.relu())
        return scores


class RecordedOtherwise(Net):
    """A network that is recorded with twice the scores that it has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2.0 if cstorch.current_backend().is_tracing else 1.0)


def batch(unlabelled: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 5, (BATCH_SIZE,), generator=generator)
    labels[:unlabelled] = -100
    return torch.randn(BATCH_SIZE, 4, generator=generator), labels


def checked(
    kind: type[nn.Module] = Net,
    make: Callable[[Any], torch.optim.Optimizer] = lambda p: torch.optim.SGD(p, lr=0.1),
    change: Callable[[nn.Module], object] = lambda model: None,
    unlabelled: int = 0,
    num_csx: int = 2,
) -> cstorch.Trainer:
    """Train for two steps under check; return the trainer."""
    torch.manual_seed(0)
    model = kind()
    change(model)
    trainer = cstorch.Trainer(
        model=model,
        optimizer=make(model.parameters()),
        config=cstorch.CSConfig(num_csx=num_csx, max_steps=3, cluster=LOCAL),
        loss_fn=functional.cross_entropy,
        check=2,
    )
    assert len(trainer.fit([batch(unlabelled)])) == 3
    return trainer


def report_of(trainer: cstorch.Trainer) -> Any:
    assert trainer.referee is not None
    report = trainer.referee.report
    assert report is not None
    assert len(report.verdicts) == 2
    return report


def test_step_of_one_micro_batch_is_equal() -> None:
    """Nothing is added in another order, and the rule of the update is the very one."""
    backends.csx.performance.micro_batch_size = BATCH_SIZE
    trainer = checked(make=lambda p: cstorch.optim.SGD(p, lr=0.1, momentum=0.5), num_csx=1)
    assert report_of(trainer).outcome == "equal"


@pytest.mark.parametrize("unlabelled", [0, 5])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_micro_batches_are_close(kind: Any, unlabelled: int) -> None:
    """A mean over micro-batches is that over the batch but for its rounding, with their dropout."""
    report = report_of(checked(make=lambda p: kind(p, lr=0.1), unlabelled=unlabelled))
    assert report.outcome == "close"
    assert max(verdict.farthest.relative for verdict in report.verdicts) < 1e-3


def test_bf16_is_close() -> None:
    cstorch.amp.enable_mixed_precision(True)
    assert report_of(checked()).outcome == "close"


def test_weights_that_share_memory_and_hooks_are_those_of_the_copy() -> None:
    """The plain loop trains what the user has made, not what ``deepcopy`` leaves of it."""

    def change(model: nn.Module) -> None:
        model.get_parameter("last.weight").register_hook(lambda gradient: gradient * 0.5)
        model.get_parameter("first.bias").data = model.get_parameter("first.weight").data[:, 0]

    torch.manual_seed(0)
    model = Net()
    change(model)
    from cstorch.referee.plain_loop import Training

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    copied = Training(model, optimizer, None, lambda *_: torch.zeros(())).copy().model
    for each in (model, copied):
        functional.cross_entropy(each(batch()[0]), batch()[1]).backward()
    with torch.no_grad():
        copied.get_parameter("first.weight").fill_(3.0)
    assert copied.get_parameter("first.bias").eq(3.0).all()
    assert model.get_parameter("first.bias").ne(3.0).all()


def test_recording_that_differs_is_named_by_its_op() -> None:
    with raises(CheckError, "unlike-plain-pytorch") as caught:
        checked(RecordedOtherwise)
    assert "test_referee.py" in str(caught.value.where)
    assert "aten.mul" in str(caught.value.where)


def test_wrong_update_is_named_by_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, update = RULES["SGD"], type(RULES["SGD"]).update

    def wrong(self: Any, parameters: Any, hyper: Any, step: int) -> None:
        update(self, parameters, {**hyper, "lr": 1.01 * hyper["lr"]}, step)

    monkeypatch.setattr(type(rule), "update", wrong)
    with raises(CheckError, "unlike-plain-pytorch") as caught:
        checked()
    assert "first.weight" in str(caught.value.where)
    assert "aten" not in str(caught.value.where)


def test_step_that_does_not_repeat_cannot_be_checked() -> None:
    """A counter beside the model gives each plain loop other numbers."""
    calls = itertools.count()

    class Counting(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            is_recorded = cstorch.current_backend().is_tracing
            return super().forward(x) + (0 if is_recorded else next(calls)) * x[:, :1]

    with raises(CheckError, "check-not-repeatable"):
        checked(Counting)
