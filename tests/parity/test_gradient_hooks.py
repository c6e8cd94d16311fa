"""Hooks of parameters and of optimizers act on the gradient of the whole batch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.plain_torch.side_by_side import (
    Net,
    assert_like_plain,
    assert_same_weights,
    batch,
    plain,
    sgd,
    trained,
)
from tests.support.programs.cstorch_program import executor, loader, run, running_backend
from waferstream.core.errors import ApplianceCompilationError

MASK = torch.zeros(8, 4)
MASK[4:] = 1


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backends.reset()


def hooked(hook: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    """Return what makes a model with a hook on its first weight."""

    def make() -> nn.Module:
        model = Net()
        model.first.weight.register_hook(hook)
        return model

    return make


def frozen_rows(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    gradient[:4] = 0
    return gradient


def in_place(gradient: torch.Tensor) -> None:
    gradient[:4].zero_()
    gradient.clamp_(-0.002, 0.002)


@pytest.mark.parametrize(
    "hook",
    [
        lambda gradient: gradient * MASK,
        lambda gradient: gradient * 0.1,
        lambda gradient: gradient.clamp(-0.002, 0.002),  # of micro-batches it would be another
        lambda gradient: gradient / (gradient.norm() + 1),
        lambda gradient: torch.where(gradient > 0, gradient, torch.zeros_like(gradient)),
        frozen_rows,
        in_place,
    ],
)
def test_hook_of_a_parameter_acts_on_the_gradient_of_the_batch(hook: Any) -> None:
    assert_like_plain(hooked(hook))


def test_hooks_of_a_parameter_run_in_their_order() -> None:
    def make() -> nn.Module:
        model = hooked(lambda gradient: gradient.clamp(max=0.001))()
        model.get_parameter("first.weight").register_hook(lambda gradient: gradient * -2)
        return model

    assert_like_plain(make)


def test_hook_after_accumulation_acts_on_the_gradient_of_the_batch() -> None:
    def make() -> nn.Module:
        model = Net()

        def clamp(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            parameter.grad.data.clamp_(-0.002, 0.002)

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(clamp)
        return model

    assert_like_plain(make, lambda model: sgd(model, momentum=0.9))


def test_hook_before_the_step_of_an_optimizer_acts_on_the_gradients_of_the_batch() -> None:
    def optimize(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def clamp(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.clamp_(-0.002, 0.002)

        optimizer.register_step_pre_hook(clamp)
        return optimizer

    assert_like_plain(Net, optimize)


def programmed(change: Callable[[nn.Module], object], **options: Any) -> nn.Module:
    """Train by a traced step that calls ``change`` between backward pass and update."""
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), **{"lr": 0.5, **options})

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            change(model)
            optimizer.step()
            return loss

        run(executor(3, loader(lambda: [batch()])), lambda given: step(*given))
        backend.end_idle()
    return model


def plain_with(change: Callable[[nn.Module], object]) -> nn.Module:
    """Do the same in a plain loop."""
    model = Net()
    optimizer = sgd(model)

    def hook(*_: Any) -> None:
        change(model)

    optimizer.register_step_pre_hook(hook)
    plain(model, optimizer)
    return model


def gradient_of(model: nn.Module, name: str) -> torch.Tensor:
    gradient = model.get_parameter(name).grad
    assert gradient is not None
    return gradient


def clamp_then_clip(model: nn.Module) -> None:
    gradient_of(model, "first.weight").clamp_(-0.002, 0.002)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def decay(model: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gradient_of(model, name).add_(parameter, alpha=0.1)


def mask_rows(model: nn.Module) -> None:
    gradient_of(model, "second.weight")[:2] = 0.0
    gradient_of(model, "first.weight").mul_(MASK)


def replace_gradient(model: nn.Module) -> None:
    weight = model.get_parameter("first.weight")
    weight.grad = torch.sign(gradient_of(model, "first.weight")) * 0.01


@pytest.mark.parametrize("change", [clamp_then_clip, decay, mask_rows, replace_gradient])
def test_step_changes_gradients_of_the_batch(change: Any) -> None:
    assert_same_weights(programmed(change), plain_with(change))


def clamp_after_clipping(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    gradient_of(model, "first.weight").clamp_(-0.002, 0.002)


def scale_by_another(model: nn.Module) -> None:
    other = gradient_of(model, "second.weight")
    gradient_of(model, "first.weight").mul_(other.norm())


def add_noise(model: nn.Module) -> None:
    gradient = gradient_of(model, "first.weight")
    gradient.add_(torch.randn_like(gradient))


def keep_average(model: nn.Module) -> None:
    MASK.mul_(0.9).add_(gradient_of(model, "first.weight"))
    gradient_of(model, "first.weight").copy_(MASK)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (clamp_after_clipping, "gradient-op-not-alone"),
        (scale_by_another, "gradient-of-several-passes"),
        (add_noise, "gradient-op-not-alone"),
        (keep_average, "write-to-constant"),
    ],
)
def test_step_that_memoryx_cannot_repeat_is_refused(change: Any, code: str) -> None:
    with raises(ApplianceCompilationError, code) as caught:
        programmed(change)
    assert __file__ in (caught.value.where or "")


def test_hook_that_only_looks_is_refused() -> None:
    seen: list[torch.Tensor] = []
    model = hooked(lambda gradient: seen.append(gradient.norm()))()
    with raises(ApplianceCompilationError, "gradient-hook-changes-nothing") as caught:
        trained(model, sgd(model))
    assert __file__ in (caught.value.where or "")


def test_write_to_a_weight_in_a_step_is_refused_and_works_in_the_loop() -> None:
    def clamp(model: nn.Module) -> None:
        with torch.no_grad():
            model.get_parameter("first.weight").clamp_(-0.1, 0.1)

    with raises(ApplianceCompilationError, "weight-written-in-step") as caught:
        programmed(clamp)
    assert "in the loop" in (caught.value.remedy or "")
    assert __file__ in (caught.value.where or "")


def halve(_module: nn.Module, gradients: Any, _output: Any) -> Any:
    return tuple(None if gradient is None else gradient / 2 for gradient in gradients)


def clamp_output(_module: nn.Module, gradients: Any) -> Any:
    return tuple(gradient.clamp(-0.01, 0.01) for gradient in gradients)


def test_backward_hooks_of_modules_act_as_in_a_plain_loop() -> None:
    def make() -> nn.Module:
        model = Net()
        model.get_submodule("second").register_full_backward_hook(halve)
        model.get_submodule("second").register_full_backward_pre_hook(clamp_output)
        return model

    assert_like_plain(make)


def test_hook_of_an_activation_acts_as_in_a_plain_loop() -> None:
    class Hooked(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.first(x))
            hidden.register_hook(lambda gradient: gradient.clamp(-0.005, 0.005))
            scores: torch.Tensor = self.second(hidden)
            return scores

    assert_like_plain(Hooked)


def test_hook_that_a_step_registers_is_refused() -> None:
    class Hooked(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.first.weight.register_hook(lambda gradient: gradient.clamp(-0.005, 0.005))
            return super().forward(x)

    model = Hooked()
    with raises(ApplianceCompilationError, "hook-registered-in-step") as caught:
        trained(model, sgd(model))
    assert __file__ in (caught.value.where or "")
