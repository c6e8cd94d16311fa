"""What a loop changes between steps acts as in plain PyTorch, or is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.plain_torch.side_by_side import Net, assert_same_weights, batch
from tests.support.programs.cstorch_program import executor, loader, running_backend
from waferstream.core.errors import ApplianceCompilationError, ConfigError

Optimizer = torch.optim.Optimizer
Change = Callable[[nn.Module, Optimizer, int], object]
STEPS = 6


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backends.reset()


def nothing(*_: Any) -> None:
    """Change nothing."""


def zero_in_step(_: nn.Module, optimizer: Optimizer) -> None:
    optimizer.zero_grad()


def programmed(
    before: Change,
    make: Callable[[nn.Module], Any],
    first: Callable[[nn.Module, Optimizer], object] = zero_in_step,
    last: Callable[[nn.Module, Optimizer], object] = nothing,
) -> nn.Module:
    """Train in a loop that calls ``before``; the step calls ``first`` and ``last``."""
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        optimizer = make(model)

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            first(model, optimizer)
            loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            last(model, optimizer)
            return loss

        for index, given in enumerate(executor(STEPS, loader(lambda: [batch()]))):
            before(model, optimizer, index)
            step(*given)
        backend.end_idle()
    return model


def plain(before: Change, make: Callable[[nn.Module], Optimizer]) -> nn.Module:
    """Do the same in a plain loop that clears gradients in every step."""
    model = Net()
    optimizer = make(model)
    x, labels = batch()
    for index in range(STEPS):
        before(model, optimizer, index)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model


def cstorch_sgd(model: nn.Module) -> Any:
    return cstorch.optim.SGD(model.parameters(), lr=0.5)


def torch_sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def clear_by_hand(model: nn.Module, _: Any) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def clear_in_place(model: nn.Module, _: Any) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def clear_model(model: nn.Module, _: Any) -> None:
    model.zero_grad()


def clear_model_in_place(model: nn.Module, _: Any) -> None:
    model.zero_grad(set_to_none=False)


CLEARS = [zero_in_step, clear_by_hand, clear_in_place, clear_model, clear_model_in_place]


@pytest.mark.parametrize("clear", CLEARS)
@pytest.mark.parametrize("is_first", [True, *nightly(False)])
def test_gradients_are_cleared_in_the_step(clear: Any, is_first: bool) -> None:
    first, last = (clear, nothing) if is_first else (nothing, clear)
    model = programmed(nothing, cstorch_sgd, first, last)
    assert_same_weights(model, plain(nothing, torch_sgd))


@pytest.mark.parametrize("clear", CLEARS)
def test_gradients_are_cleared_in_the_loop(clear: Any) -> None:
    def before(model: nn.Module, optimizer: Optimizer, _: int) -> None:
        clear(model, optimizer)

    model = programmed(before, cstorch_sgd, first=nothing)
    assert_same_weights(model, plain(nothing, torch_sgd))


@pytest.mark.parametrize("every", [2, STEPS + 1])
def test_gradients_that_add_up_are_refused(every: int) -> None:
    def before(_: nn.Module, optimizer: Optimizer, index: int) -> None:
        if index % every == 0:
            optimizer.zero_grad()

    with raises(ApplianceCompilationError, "gradients-not-cleared") as caught:
        programmed(before, cstorch_sgd, first=nothing)
    assert __file__ in (caught.value.where or "")


def freeze(model: nn.Module, _: Any, index: int) -> None:
    """Let only the second layer train at first, then both, then only the first."""
    model.get_submodule("first").requires_grad_(index >= 2)
    model.get_submodule("second").requires_grad_(index < 4)


def hook_at_the_third_step(model: nn.Module, _: Any, index: int) -> None:
    if index == 2:
        model.get_parameter("first.weight").register_hook(lambda gradient: gradient * 0.1)


def hook_in_the_first_steps(model: nn.Module, _: Any, index: int) -> None:
    bias = model.get_parameter("first.bias")
    if index == 0:
        bias.register_hook(lambda gradient: gradient * 10)
    if index == 3:
        assert bias._backward_hooks is not None
        bias._backward_hooks.clear()


def thaw_with_a_group(model: nn.Module, optimizer: Optimizer, index: int) -> None:
    if index == 0:
        model.get_submodule("first").requires_grad_(False)
    if index == 2:
        model.get_submodule("first").requires_grad_(True)
        lr = optimizer.param_groups[0]["lr"] / 2
        group = {"params": list(model.get_submodule("first").parameters()), "lr": lr}
        optimizer.add_param_group(group)


RULES: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.5, "momentum": 0.5},
    "Adam": {"lr": 0.05, "eps": 1e-8},
}


def optimizer_of(module: Any, name: str, parameters: Any) -> Any:
    options = RULES[name]
    if module is cstorch.optim and name == "Adam":
        options = {**options, "eps_after_correction": True}
    return getattr(module, name)(parameters, **options)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("change", [freeze, hook_at_the_third_step, hook_in_the_first_steps])
def test_change_between_two_steps_acts(change: Any, name: str) -> None:
    model = programmed(change, lambda m: optimizer_of(cstorch.optim, name, m.parameters()))
    expected = plain(change, lambda m: optimizer_of(torch.optim, name, m.parameters()))
    assert_same_weights(model, expected)


@pytest.mark.parametrize("name", RULES)
def test_group_that_is_added_between_two_steps_begins_to_count(name: str) -> None:
    def make(module: Any) -> Callable[[nn.Module], Any]:
        return lambda model: optimizer_of(module, name, model.get_submodule("second").parameters())

    model = programmed(thaw_with_a_group, make(cstorch.optim))
    assert_same_weights(model, plain(thaw_with_a_group, make(torch.optim)))


def test_iterations_without_a_call_train_nothing() -> None:
    twin, model = Net(), Net()
    plain_optimizer = optimizer_of(torch.optim, "Adam", twin.parameters())
    batches = [(x + index, labels) for index, (x, labels) in enumerate([batch()] * STEPS)]
    for index, (x, labels) in enumerate(batches):
        if index in (1, 2, 4):
            plain_optimizer.zero_grad()
            functional.cross_entropy(twin(x), labels).backward()
            plain_optimizer.step()
    with running_backend() as backend:
        cstorch.compile(model, backend)
        optimizer = optimizer_of(cstorch.optim, "Adam", model.parameters())

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), labels).backward()
            optimizer.step()

        loop = executor(STEPS, loader(lambda: batches), activation_steps=3)
        for index, given in enumerate(loop):
            if index in (1, 2, 4):
                step(*given)
        backend.end_idle()
    assert_same_weights(model, twin)


def test_step_that_is_called_twice_in_an_iteration_is_refused() -> None:
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        optimizer = cstorch_sgd(model)

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), labels).backward()
            optimizer.step()

        with raises(ConfigError, "step-called-twice"):
            for given in executor(STEPS, loader(lambda: [batch()])):
                step(*given)
                step(*given)


def test_removed_state_of_an_optimizer_is_refused() -> None:
    """Plain PyTorch would begin it anew; MemoryX still has it."""

    def clear(_: nn.Module, optimizer: Optimizer, index: int) -> None:
        if index == 3:
            optimizer.state.clear()

    with raises(ConfigError, "state-removed"):
        programmed(clear, lambda model: cstorch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
