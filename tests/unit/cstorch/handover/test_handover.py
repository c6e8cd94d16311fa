"""What a loop that hands its steps over must not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch.handover import recorder
from tests.support.errors import raises
from tests.support.programs.ended import ended_backend
from waferstream.core.errors import ApplianceCompilationError, ProgramOrderError

LOCAL: Any = {"runtime": {"kind": "local"}}


class Loop:
    """A model and an optimizer that were handed over, and a batch."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.batch = torch.randn(4, 3)
        self.handover = cstorch.hand_over(net, self.optimizer, cluster=LOCAL)

    def step(self) -> torch.Tensor:
        """Run a whole step; return its loss."""
        loss: torch.Tensor = self.net(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss


@pytest.fixture
def loop() -> Iterator[Loop]:
    with ended_backend():
        yield Loop(nn.Linear(3, 2))


@pytest.mark.parametrize(
    "read",
    [torch.Tensor.item, float, bool, str.format, torch.Tensor.numpy],
    ids=["item", "float", "bool", "format", "numpy"],
)
def test_a_value_is_known_after_the_step_alone(loop: Loop, read: Callable[..., Any]) -> None:
    loss = loop.net(loop.batch).square().mean()
    with raises(ApplianceCompilationError, "deferred-read") as caught:
        read("{}", loss) if read is str.format else read(loss)
    assert "test_handover.py" in str(caught.value.where)


def test_branches_on_values_in_the_model_are_refused() -> None:
    class Branching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum() > 0 else x[:, :2]

    with ended_backend(), raises(ApplianceCompilationError, "step-not-outlined"):
        Loop(Branching(3, 2)).step()


def test_gradients_are_no_sum_over_batches(loop: Loop) -> None:
    loop.net(loop.batch).sum().backward()
    with raises(ApplianceCompilationError, "handed-over-accumulation"):
        loop.net(loop.batch).sum().backward()


def test_gradients_cannot_be_read_and_must_be_cleared(loop: Loop) -> None:
    loop.net(loop.batch).square().mean().backward()
    weight = next(loop.net.parameters())
    with raises(ApplianceCompilationError, "gradient-of-earlier-step"):
        assert weight.grad is not None
        weight.grad.norm()
    loop.optimizer.step()
    with raises(ApplianceCompilationError, "gradients-not-cleared"):
        loop.step()


def test_weights_are_used_in_the_model_alone(loop: Loop) -> None:
    penalty = sum(parameter.square().sum() for parameter in loop.net.parameters())
    with raises(ApplianceCompilationError, "weight-outside-forward"):
        loop.net(loop.batch).square().mean() + penalty


def test_an_update_needs_a_backward_pass(loop: Loop) -> None:
    with raises(ProgramOrderError, "update-without-backward"):
        loop.optimizer.step()


def test_a_large_tensor_is_of_the_batch(loop: Loop) -> None:
    with raises(ApplianceCompilationError, "tensor-not-of-batch"):
        loop.net(loop.batch).sum() + torch.zeros(5000)


def test_what_the_loss_depends_on_is_not_written_by_the_loop(loop: Loop) -> None:
    total = torch.zeros(())
    total += loop.net(loop.batch).square().mean()
    total.backward()
    with raises(ApplianceCompilationError, "deferred-written"):
        loop.optimizer.step()


def test_a_step_that_has_failed_leaves_nothing_to_use(loop: Loop) -> None:
    before = loop.net(loop.batch).sum()
    with raises(ProgramOrderError, "update-without-backward"):
        loop.optimizer.step()
    with raises(ApplianceCompilationError, "deferred-of-earlier-step"):
        loop.net(loop.batch).sum() + before


def test_large_results_are_not_kept(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LARGEST_KEPT_BYTES", 8)
    output = loop.net(loop.batch)
    output.square().mean().backward()
    loop.optimizer.step()
    with raises(ApplianceCompilationError, "deferred-not-kept"):
        output.sum()


def test_a_loop_ends_with_its_cluster(loop: Loop) -> None:
    loop.handover.end()
    loop.handover.end()
    loop.optimizer.zero_grad()
    loss = loop.step()
    assert loss.item() > 0, "a plain loop may go on"


def test_another_cluster_ends_the_handover(loop: Loop) -> None:
    loop.net(loop.batch).square().mean().backward()
    cstorch.current_backend().shutdown()
    with raises(ProgramOrderError, "handover-ended"):
        loop.optimizer.step()
