"""The optimizer of torch that a user gives to ``cstorch.Trainer`` is the one that trains.

Its groups count at every fit, and its state goes both ways, as if it had made every step itself.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, WaferStreamError

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))
Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adadelta": (torch.optim.Adadelta, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adam": (torch.optim.Adam, {"lr": 0.05}),
    "Adam with amsgrad": (torch.optim.Adam, {"lr": 0.05, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.05}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.05}),
    "ASGD": (torch.optim.ASGD, {"lr": 0.05, "t0": 1}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.05}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.05}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.05, "momentum": 0.9, "centered": True}),
    "Rprop": (torch.optim.Rprop, {}),
    "SGD": (torch.optim.SGD, {"lr": 0.05}),
    "SGD with momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
}


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32 on whole batches, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 8
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


class Net(nn.Module):
    """A model with a parameter that no step uses, and one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.unused = nn.Linear(2, 2)
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x) * self.fixed
        return output


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    return x, x.sum(dim=1, keepdim=True)


def train_plainly(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x, y = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()


def trainer_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2, device: Any = "csx"
) -> cstorch.Trainer:
    config = cstorch.CSConfig(max_steps=steps, cluster=LOCAL, target_device=device)
    return cstorch.Trainer(
        model=model, optimizer=optimizer, config=config, loss_fn=functional.mse_loss
    )


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    trainer = trainer_of(model, optimizer, steps)
    trainer.fit([batch()])
    trainer.shutdown()


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.05)


class Both:
    """A model and an optimizer, and copies that a plain loop trains."""

    def __init__(self, make: Make = momentum) -> None:
        self.model, self.plain = Net(), Net()
        self.optimizer, self.reference = make(self.model), make(self.plain)

    def assert_same(self) -> None:
        """Weights, states and groups are those of the plain loop."""
        expected = dict(self.plain.named_parameters())
        for name, parameter in self.model.named_parameters():
            close(parameter.detach(), expected[name].detach(), name)
        found, wanted = self.optimizer.state_dict(), self.reference.state_dict()
        assert found["param_groups"] == wanted["param_groups"]
        assert {k: set(v) for k, v in found["state"].items() if v} == {
            k: set(v) for k, v in wanted["state"].items() if v
        }
        for index, state in wanted["state"].items():
            for key, value in state.items():
                assert found["state"][index][key].dtype == value.dtype
                close(found["state"][index][key], value, f"{key} of {index}")


def close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=f"{what}: {found}")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_is_that_of_plain_steps(name: str) -> None:
    """In torch's layout, after a fit and after one that follows plain steps."""
    kind, options = OPTIMIZERS[name]
    both = Both(lambda model: kind([p for n, p in model.named_parameters() if "0" in n], **options))
    fit(both.model, both.optimizer, 3)
    train_plainly(both.plain, both.reference, 3)
    both.assert_same()
    train_plainly(both.model, both.optimizer, 2)
    fit(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 4)
    both.assert_same()


def test_parameters_without_gradient_have_no_state() -> None:
    """Neither those that are not trained nor those that no step uses."""
    both = Both(adam)
    fit(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 2)
    both.assert_same()
    fit(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 2)
    both.assert_same()


@pytest.mark.parametrize("device", ["csx", "cpu"])
@pytest.mark.parametrize("make", [momentum, adam])
def test_groups_of_each_fit_count(make: Make, device: str) -> None:
    """A rate that the program changes between two fits of one trainer, and between two trainers."""
    both = Both(make)
    for _ in range(2):
        trainer = trainer_of(both.model, both.optimizer, 2, device)
        for _ in range(2):
            trainer.fit([batch()])
            train_plainly(both.plain, both.reference, 2)
            for group in (*both.optimizer.param_groups, *both.reference.param_groups):
                group["lr"] *= 0.5
    both.assert_same()


def test_schedule_of_torch_is_stepped_between_fits(caplog: pytest.LogCaptureFixture) -> None:
    """A fit keeps the rate that it begins with, which the log states."""
    both = Both(adam)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(one, lambda epoch: 1 / (1 + epoch))
        for one in (both.optimizer, both.reference)
    ]
    with caplog.at_level("WARNING", "waferstream"):
        trainer = trainer_of(both.model, both.optimizer)
    assert "schedule" in caplog.text
    for _ in range(3):
        trainer.fit([batch()])
        train_plainly(both.plain, both.reference, 2)
        for schedule in schedules:
            schedule.step()
    both.assert_same()


@pytest.mark.parametrize("make", [momentum, adam])
def test_state_is_read_from_a_file_and_changed_by_hand(make: Make) -> None:
    """In a new optimizer that is loaded, and between two fits of one trainer."""
    both = Both(make)
    fit(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 2)
    file = io.BytesIO()
    torch.save(both.optimizer.state_dict(), file)
    file.seek(0)
    both.optimizer = make(both.model)
    both.optimizer.load_state_dict(torch.load(file))
    trainer = trainer_of(both.model, both.optimizer)
    for factor in (0.5, 2.0):
        for one in (both.optimizer, both.reference):
            for state in one.state.values():
                for key, value in state.items():
                    if key == "momentum_buffer":
                        value.mul_(factor)
                    elif key == "exp_avg":
                        state[key] = value * factor
        trainer.fit([batch()])
        train_plainly(both.plain, both.reference, 2)
    both.assert_same()


def test_state_may_be_loaded_and_dropped_between_fits_of_a_trainer() -> None:
    """An empty state begins anew."""
    both = Both(adam)
    trainer = trainer_of(both.model, both.optimizer)
    trainer.fit([batch()])
    train_plainly(both.plain, both.reference, 2)
    for one in (both.optimizer, both.reference):
        one.state.clear()
    trainer.fit([batch()])
    train_plainly(both.plain, both.reference, 2)
    both.assert_same()


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("make", [momentum, adam])
def test_plain_steps_follow_a_fit(make: Make, is_ended: bool) -> None:
    """With the same optimizer, whether its cluster still runs or not."""
    both = Both(make)
    trainer = trainer_of(both.model, both.optimizer)
    trainer.fit([batch()])
    if is_ended:
        trainer.shutdown()
    train_plainly(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 4)
    both.assert_same()
    if not is_ended:
        trainer.fit([batch()])
        train_plainly(both.plain, both.reference, 2)
        both.assert_same()


def test_state_after_a_failed_fit_is_that_of_its_steps() -> None:
    """The next one goes on with it."""

    def broken() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from (batch(), batch())
        raise ValueError("the loader broke")

    both = Both(adam)
    with pytest.raises(WaferStreamError):
        trainer_of(both.model, both.optimizer, 5).fit(broken)
    train_plainly(both.plain, both.reference, 2)
    both.assert_same()
    fit(both.model, both.optimizer, 2)
    train_plainly(both.plain, both.reference, 2)
    both.assert_same()


def test_optimizer_of_cstorch_goes_on_in_another_trainer() -> None:
    """Its momentum is that of the trainer before."""
    model, plain = Net(), Net()
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        fit(model, optimizer, 2)
    train_plainly(plain, momentum(plain), 4)
    expected = dict(plain.named_parameters())
    for name, parameter in model.named_parameters():
        close(parameter.detach(), expected[name].detach(), name)


def test_parameters_must_begin_to_be_trained_together() -> None:
    """Torch would correct the moments of each by its own count."""
    both = Both(adam)
    fit(both.model, both.optimizer, 2)
    both.optimizer.state.popitem()
    with raises(ConfigError, "optimizer-steps-differ"):
        fit(both.model, both.optimizer, 2)


def test_parameters_must_stay_between_fits() -> None:
    both = Both()
    trainer = trainer_of(both.model, both.optimizer)
    trainer.fit([batch()])
    both.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with raises(ConfigError, "torch-groups-changed"):
        trainer.fit([batch()])
