"""Backward passes that a program writes itself: the gradients of the whole batch, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError

ROWS, CLASSES, STEPS = 8, 5, 2
Batch = dict[str, torch.Tensor]


def backward(make: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the identity whose backward pass is a function of the gradient."""

    class Identity(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = make(gradient)
            return made

    return Identity.apply


class Linear(Function):
    """A product with a weight, whose gradients are multiplied by a number or divided by rows."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, divides: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.divides = divides
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        divisor = x.shape[0] if ctx.divides else 2
        return gradient @ weight, gradient.t() @ x / divisor, gradient.sum(0), None


class CrossEntropy(Function):
    """A mean over samples, or over those that are labelled, with its gradient by hand."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, labels: torch.Tensor, masks: bool) -> torch.Tensor:
        logs = scores.log_softmax(-1)
        mask = (labels > 0).float() if masks else torch.ones_like(logs[:, 0])
        total = mask.sum().clamp(min=1) if masks else labels.shape[0]
        ctx.save_for_backward(logs.exp(), labels, mask)
        ctx.masks = masks
        return (-logs.gather(1, labels[:, None])[:, 0] * mask).sum() / total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        chances, labels, mask = ctx.saved_tensors
        total = mask.sum().clamp(min=1) if ctx.masks else labels.shape[0]
        rows = chances - functional.one_hot(labels, CLASSES)
        return gradient * rows * mask[:, None] / total, None, None


class Injected(Function):
    """A loss beside the one that is differentiated, whose gradient is a constant."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.shape = loss.shape
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, torch.ones(ctx.shape)


class Net(nn.Module):
    """Two layers, with something between them, and a loss."""

    def __init__(self, between: Any = None, loss: Any = functional.cross_entropy) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, CLASSES)
        self.between, self.loss = between, loss
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden, self.labels = torch.tanh(self.first(x)), labels
        if self.between is not None:
            hidden = self.between(self, hidden)
        value: torch.Tensor = self.loss(self.second(hidden), labels)
        return value


def linear(divides: bool) -> Any:
    def between(net: nn.Module, x: torch.Tensor) -> Any:
        weight = net.get_parameter("second.weight")
        bias = net.get_parameter("first.bias")
        return Linear.apply(x, weight.t() @ weight, bias, divides)  # type: ignore[no-untyped-call]

    return between


def hooked(hook: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def between(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x * 1.0
        x.register_hook(hook)
        return x

    return between


def injected(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = Injected.apply(x, x.square().mean())  # type: ignore[no-untyped-call]
    return made


def by_count(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    total = net.labels.clamp(max=1).sum() + 1  # type: ignore[operator]
    return of_function(lambda g: g / total)(net, x)


def of_function(make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    own = backward(make)
    return lambda _, x: own(x)


def of_loss(make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    own = backward(make)
    return lambda scores, labels: own(functional.cross_entropy(scores, labels))


def by_hand(masks: bool) -> Any:
    made: Any = CrossEntropy.apply
    return lambda scores, labels: made(scores, labels, masks)


def of_weight(hook: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def between(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        weight = torch.tanh(net.get_parameter("second.weight"))
        weight.register_hook(hook)
        return x + (x @ weight.t()) @ weight

    return between


RIGHT: dict[str, Callable[[], Net]] = {
    "rows of a hook": lambda: Net(hooked(lambda g: g / (g.norm(dim=1, keepdim=True) + 1))),
    "clipped values": lambda: Net(hooked(lambda g: g.clamp(-0.01, 0.01))),
    "times a constant": lambda: Net(of_function(lambda g: g * torch.tensor([2.0]).sum())),
    "reversed": lambda: Net(of_function(lambda g: -0.3 * g)),
    "none": lambda: Net(of_function(torch.zeros_like)),
    "a product": lambda: Net(linear(divides=False)),
    "half of a loss": lambda: Net(loss=of_loss(lambda g: g / 2)),
    "a loss by hand": lambda: Net(loss=by_hand(masks=False)),
    "a masked loss by hand": lambda: Net(loss=by_hand(masks=True)),
    "half of what a weight leads to": lambda: Net(of_weight(lambda g: g * 0.5)),
}
WRONG: dict[str, Callable[[], Net]] = {
    "largest of a batch": lambda: Net(hooked(lambda g: g / g.abs().max())),
    "mean of a batch": lambda: Net(hooked(lambda g: g - g.mean(0))),
    "norm of a batch": lambda: Net(of_function(lambda g: g / g.norm())),
    "deviation of a batch": lambda: Net(of_function(lambda g: g / (g.std(0) + 1))),
    "divided by rows": lambda: Net(linear(divides=True)),
    "rows over their number": lambda: Net(of_function(lambda g: g / g.shape[0])),
    "rows over a number of the inputs": lambda: Net(by_count),
    "a constant": lambda: Net(injected),
    "clipped values of a weight": lambda: Net(of_weight(lambda g: g.clamp(-0.01, 0.01))),
}


def batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(ROWS, 4, generator=generator),
            "labels": torch.randint(CLASSES, (ROWS,), generator=generator),
        }
        for _ in range(STEPS)
    ]


def trained(make: Callable[[], Net], size: int) -> Net:
    with running_backend(Shape(1)) as backend:
        backends.csx.performance.micro_batch_size = size
        model = make()
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            value: torch.Tensor = compiled(**batch)
            value.backward()
            optimizer.step()
            return value

        losses(step, executor(STEPS, loader(batches)))
        backend.end_idle()
    return model


def plain(make: Callable[[], Net]) -> Net:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in batches():
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", RIGHT)
def test_gradients_are_those_of_the_whole_batch(name: str, size: int) -> None:
    expected = dict(plain(RIGHT[name]).named_parameters())
    for parameter, weight in trained(RIGHT[name], size).named_parameters():
        torch.testing.assert_close(weight, expected[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", WRONG)
def test_gradients_that_relate_samples_are_refused(name: str) -> None:
    """The error names the line of the backward pass and a remedy, which works."""
    with raises(ApplianceCompilationError, "gradient-relates-samples") as caught:
        trained(WRONG[name], 3)
    assert "test_own_backward.py" in str(caught.value.where)
    expected = dict(plain(WRONG[name]).named_parameters())
    for parameter, weight in trained(WRONG[name], ROWS).named_parameters():
        torch.testing.assert_close(weight, expected[parameter], rtol=1e-4, atol=1e-6)
