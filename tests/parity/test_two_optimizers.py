"""Optimizers over disjoint parameters: in one traced step, and in steps that take turns."""

from collections.abc import Iterator
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
from waferstream.core.errors import ApplianceCompilationError

STEPS = 4
RULES: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.5, "momentum": 0.5},
    "Adam": {"lr": 0.05, "eps": 1e-8},
}


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backends.reset()


def optimizer_of(module: Any, name: str, model: nn.Module, part: str) -> Any:
    options = RULES[name]
    if module is cstorch.optim and name == "Adam":
        options = {**options, "eps_after_correction": True}
    return getattr(module, name)(model.get_submodule(part).parameters(), **options)


def loss_of(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), labels)


@pytest.mark.parametrize("name", RULES)
def test_one_step_steps_two_optimizers(name: str) -> None:
    twin = Net()
    plain = [optimizer_of(torch.optim, name, twin, part) for part in ("first", "second")]
    for _ in range(STEPS):
        for each in plain:
            each.zero_grad()
        loss_of(twin, *batch()).backward()
        for each in plain:
            each.step()
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        one = optimizer_of(cstorch.optim, name, model, "first")
        two = optimizer_of(cstorch.optim, name, model, "second")

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> None:
            one.zero_grad()
            two.zero_grad()
            loss_of(model, x, labels).backward()
            one.step()
            two.step()

        for given in executor(STEPS, loader(lambda: [batch()])):
            step(*given)
        assert float(next(iter(one.state.values()))["step"]) == STEPS
        backend.end_idle()
    assert_same_weights(model, twin)


def test_step_that_needs_a_weight_it_has_updated_is_refused() -> None:
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        one = optimizer_of(cstorch.optim, "SGD", model, "first")
        two = optimizer_of(cstorch.optim, "SGD", model, "second")

        @cstorch.trace
        def step(x: torch.Tensor, labels: torch.Tensor) -> None:
            for optimizer in (one, two):
                one.zero_grad()
                two.zero_grad()
                loss_of(model, x, labels).backward()
                optimizer.step()

        with raises(ApplianceCompilationError, "weight-read-after-update") as caught:
            for given in executor(STEPS, loader(lambda: [batch()])):
                step(*given)
    assert "two steps" in (caught.value.remedy or "")


def adversary(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of the first layer, which works against the second."""
    return -loss_of(model, x, labels) + model.get_submodule("first")(x).square().mean()


def turns(index: int) -> bool:
    return True


def every_other(index: int) -> bool:
    return index % 2 == 1


@pytest.mark.parametrize("is_due", [turns, every_other])
@pytest.mark.parametrize("names", [("Adam", "SGD"), *nightly((("SGD", "SGD"),))])
def test_two_steps_take_turns_over_one_model(names: tuple[str, str], is_due: Any) -> None:
    twin, expected = Net(), []
    first = optimizer_of(torch.optim, names[0], twin, "first")
    second = optimizer_of(torch.optim, names[1], twin, "second")
    for index in range(STEPS):
        second.zero_grad()
        loss = loss_of(twin, *batch())
        loss.backward()
        second.step()
        expected.append(loss.item())
        if is_due(index):
            first.zero_grad()
            adversary(twin, *batch()).backward()
            first.step()
    with running_backend() as backend:
        model = cstorch.compile(Net(), backend)
        one = optimizer_of(cstorch.optim, names[0], model, "first")
        two = optimizer_of(cstorch.optim, names[1], model, "second")

        @cstorch.trace
        def step_two(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            two.zero_grad()
            loss = loss_of(model, x, labels)
            loss.backward()
            two.step()
            return loss

        @cstorch.trace
        def step_one(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            one.zero_grad()
            loss = adversary(model, x, labels)
            loss.backward()
            one.step()
            return loss

        seen: list[float] = []

        @cstorch.step_closure
        def note(loss: torch.Tensor) -> None:
            seen.append(loss.item())

        for index, given in enumerate(executor(STEPS, loader(lambda: [batch()]))):
            note(step_two(*given))
            if is_due(index):
                step_one(*given)
        backend.end_idle()
    torch.testing.assert_close(seen, expected, rtol=0, atol=2e-6)
    assert_same_weights(model, twin)
