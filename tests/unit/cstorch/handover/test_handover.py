"""What a loop that hands its steps over must not do."""

from __future__ import annotations

import math
from collections.abc import Iterator
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

    def __init__(self, net: Any) -> None:
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


def test_a_value_is_read_before_the_step(loop: Loop) -> None:
    output = loop.net(loop.batch)
    expected = nn.functional.linear(loop.batch, loop.net.weight, loop.net.bias).detach()
    loss = output.square().mean()
    assert loss.item() == pytest.approx(float(expected.square().mean()))
    assert f"{loss:.3f}" == f"{expected.square().mean():.3f}"
    loss.backward()
    loop.optimizer.step()
    assert torch.allclose(output, expected), "it is the value of the step afterwards"


def test_what_a_step_draws_is_known_after_it_alone() -> None:
    with ended_backend():
        loop = Loop(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)))
        loss = loop.net(loop.batch).square().mean()
        loss.item()
        loss.backward()
        with raises(ApplianceCompilationError, "deferred-read") as caught:
            loop.optimizer.step()
        assert "test_handover.py" in str(caught.value.where)


def test_what_is_drawn_beside_the_loss_may_be_read(loop: Loop) -> None:
    output = loop.net(loop.batch)
    drawn = torch.multinomial(output.softmax(dim=-1), 1)
    first = drawn.tolist()
    output.square().mean().backward()
    loop.optimizer.step()
    assert drawn.tolist() == first


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_call_that_no_update_follows_writes_statistics(is_read: bool, is_last: bool) -> None:
    cstorch.backends.csx.performance.micro_batch_size = 4

    def statistics(hands_over: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net: Any = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        handover = cstorch.hand_over(net, optimizer, cluster=LOCAL) if hands_over else None
        for step in range(3):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 3)).square().mean()
            if is_read:
                loss.item()
            if step == (2 if is_last else 1):
                continue
            loss.backward()
            optimizer.step()
        if handover is not None:
            handover.end()
        return [*net[1].buffers()]

    with ended_backend():
        for found, expected in zip(statistics(True), statistics(False), strict=True):
            torch.testing.assert_close(found, expected)


def test_a_model_is_not_evaluated_before_it_has_its_statistics() -> None:
    with ended_backend():
        loop = Loop(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        loop.net(loop.batch)
        with raises(ApplianceCompilationError, "buffers-behind"), torch.no_grad():
            loop.net(loop.batch)


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
    with raises(ApplianceCompilationError, "gradient-of-earlier-step") as caught:
        assert weight.grad is not None
        weight.grad.norm()
    assert "test_handover.py" in str(caught.value.where)
    loop.optimizer.step()
    with raises(ApplianceCompilationError, "gradients-not-cleared"):
        loop.step()


def test_weights_are_used_in_the_model_alone(loop: Loop) -> None:
    penalty = sum(parameter.square().sum() for parameter in loop.net.parameters())
    with raises(ApplianceCompilationError, "weight-outside-forward"):
        loop.net(loop.batch).square().mean() + penalty


def test_a_backward_pass_reaches_all_parameters(loop: Loop) -> None:
    loss = loop.net(loop.batch).sum()
    with raises(ApplianceCompilationError, "backward-to-some"):
        loss.backward(inputs=[loop.net.bias])
    with raises(ApplianceCompilationError, "backward-to-some"):
        torch.autograd.grad(loss, list(loop.net.parameters()))


def without(loop: Loop) -> None:
    loop.net.bias.grad = None


def with_another(loop: Loop) -> None:
    loop.net.bias.grad = torch.ones(2)


def with_none(loop: Loop) -> None:
    loop.optimizer.zero_grad(set_to_none=False)


@pytest.mark.parametrize("change", [without, with_another, with_none])
def test_gradients_stay_until_the_update(loop: Loop, change: Any) -> None:
    loop.net(loop.batch).sum().backward()
    change(loop)
    with raises(ApplianceCompilationError, "gradient-replaced"):
        loop.optimizer.step()


@pytest.mark.parametrize("is_read", [False, True])
def test_weights_stay_from_the_call_of_the_model_to_the_update(loop: Loop, is_read: bool) -> None:
    loop.step()
    loop.optimizer.zero_grad()
    if is_read:
        loop.net.bias.sum().item()
    loss = loop.net(loop.batch).sum()
    with torch.no_grad():
        loop.net.bias.add_(1)
    loss.backward()
    with raises(ApplianceCompilationError, "weight-written-in-step") as caught:
        loop.optimizer.step()
    assert caught.value.value == "bias"


def test_the_model_is_called_with_its_own_parameters(loop: Loop) -> None:
    half = {"weight": loop.net.weight * 0.5}
    with raises(ApplianceCompilationError, "parameters-replaced-in-step"):
        torch.func.functional_call(loop.net, half, (loop.batch,))


def test_an_update_needs_a_backward_pass(loop: Loop) -> None:
    with raises(ProgramOrderError, "update-without-backward"):
        loop.optimizer.step()


def test_a_large_tensor_is_of_the_batch(loop: Loop) -> None:
    with raises(ApplianceCompilationError, "tensor-not-of-batch"):
        loop.net(loop.batch).sum() + torch.zeros(5000)


def test_a_sum_has_no_old_value_under_any_name(loop: Loop) -> None:
    total = torch.zeros(())
    same, losses, expected = total, torch.zeros(2), []
    for step in range(2):
        loop.optimizer.zero_grad()
        loss = loop.net(loop.batch).square().mean()
        assert total.add_(loss.detach()) is total
        losses[step] = loss.detach()
        losses[0].mul_(loss.detach())
        expected.append(loss.item())
        assert same.item() == pytest.approx(sum(expected))
        loss.div_(2)
        loss.backward()
        loop.optimizer.step()
        assert loss.item() == pytest.approx(expected[-1] / 2)
    assert type(same) is type(losses) is torch.Tensor
    assert same.item() == pytest.approx(sum(expected))
    assert losses.tolist() == pytest.approx([expected[0] ** 2 * expected[1], expected[1]])


def test_what_is_added_after_the_step_has_its_value_then(loop: Loop) -> None:
    total = torch.zeros(())
    loss = loop.net(loop.batch).square().mean()
    total.add_(loss.detach())
    loss.div_(4)
    loss.backward()
    loop.optimizer.step()
    assert total.item() == pytest.approx(4 * loss.item())


def test_a_result_is_not_written_to_another_argument(loop: Loop) -> None:
    total = torch.zeros(())
    with raises(ApplianceCompilationError, "deferred-written"):
        torch.add(total, loop.net(loop.batch).sum(), out=total)


def test_a_constant_as_long_as_the_batch_is_refused(loop: Loop) -> None:
    weight = torch.rand(4)
    with raises(ApplianceCompilationError, "constant-or-batch"):
        for _ in range(2):
            loop.optimizer.zero_grad()
            loss = (loop.net(torch.randn(4, 3)).sum(dim=1) * weight).mean()
            loss.backward()
            loop.optimizer.step()


def test_a_loop_may_have_one_batch(loop: Loop) -> None:
    targets = torch.rand(4)
    for _ in range(2):
        loop.optimizer.zero_grad()
        (loop.net(loop.batch).sum(dim=1) - targets).square().mean().backward()
        loop.optimizer.step()


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


def test_a_compiled_model_is_handed_over_as_it_was_before() -> None:
    net = nn.Linear(3, 2)
    compiled: Any = torch.compile(net, backend="eager")
    own = compiled.forward
    with ended_backend():
        loop = Loop(compiled)
        before = net.weight.detach().clone()
        expected = nn.functional.linear(loop.batch, net.weight, net.bias).square().mean().item()
        assert loop.step().item() == pytest.approx(expected)
        compiled.eval()
        assert compiled(loop.batch).requires_grad, "evaluation computes in this process"
        loop.handover.end()
    assert not torch.equal(net.weight, before)
    assert compiled.forward is own


def test_another_cluster_ends_the_handover(loop: Loop) -> None:
    loop.net(loop.batch).square().mean().backward()
    cstorch.current_backend().shutdown()
    with raises(ProgramOrderError, "handover-ended"):
        loop.optimizer.step()


def test_clipping_returns_the_norm_before(loop: Loop) -> None:
    """After the step: the gradients are on the cluster until then."""
    total = torch.zeros(())
    norms = []
    for limit in (0.1, math.inf):
        weights = [each.detach().clone().requires_grad_() for each in loop.net.parameters()]
        output = nn.functional.linear(loop.batch, weights[0], weights[1])
        gradients = torch.autograd.grad(output.square().sum(), weights)
        loop.optimizer.zero_grad()
        loop.net(loop.batch).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(loop.net.parameters(), limit)
        total += norm
        half = norm / 2
        with raises(ApplianceCompilationError, "deferred-read"):
            half.item()
        loop.optimizer.step()
        expected = torch.stack([each.norm() for each in gradients]).norm().item()
        norms.append(expected)
        assert (norm.item(), half.item()) == pytest.approx((expected, expected / 2))
        assert f"{norm:.3f}" == f"{expected:.3f}"
    assert total.item() == pytest.approx(sum(norms))


def test_a_norm_of_clipped_gradients_is_unknown(loop: Loop) -> None:
    loop.net(loop.batch).square().sum().backward()
    nn.utils.clip_grad_value_(loop.net.parameters(), 0.01)
    norm = nn.utils.clip_grad_norm_(loop.net.parameters(), 1.0)
    loop.optimizer.step()
    with raises(ApplianceCompilationError, "norm-unknown"):
        norm.item()


def test_a_loop_clips_the_gradients_of_another_model(loop: Loop) -> None:
    """They are another model's, though it has as many parameters."""
    other = nn.Linear(3, 2)
    other(loop.batch).sum().backward()
    before = loop.net.weight.detach().clone()
    loss = loop.net(loop.batch).square().sum()
    expected = torch.autograd.grad(
        nn.functional.linear(
            loop.batch, weight := before.clone().requires_grad_(), loop.net.bias.detach()
        )
        .square()
        .sum(),
        weight,
    )[0]
    loss.backward()
    norm = nn.utils.clip_grad_norm_(other.parameters(), 1e-3)
    assert norm.item() > 1.0
    assert other.weight.grad is not None
    assert other.weight.grad.norm() <= 1e-3
    loop.optimizer.step()
    torch.testing.assert_close(loop.net.weight.detach(), before - 0.1 * expected)


def test_clipping_is_torchs_again_after_the_end() -> None:
    """Also of a step that was left between its backward pass and its update."""
    with ended_backend():
        loop = Loop(nn.Linear(3, 2))
        loop.net(loop.batch).square().mean().backward()
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    assert nn.utils.clip_grad_norm_([weight], 1.0) == 5.0
