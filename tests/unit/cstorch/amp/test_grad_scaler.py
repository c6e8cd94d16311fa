"""The loss scale in a user's program: arguments, state, order of calls, values in closures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import cstorch
from appliance.coordinator.commands import ReadWeights
from cstorch import amp
from tests.support.errors import raises
from tests.support.programs.cstorch_program import cluster_of, executor, losses, running_backend
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ApplianceCompilationError, ApplianceNanError, ConfigError
from waferstream.core.optimizer import LossScale, LossScaleRule


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf")])
def test_loss_scale_must_be_positive(scale: float) -> None:
    """A scale of zero would train nothing."""
    with raises(ConfigError, "loss-scale-not-positive"):
        amp.GradScaler(scale)


@pytest.mark.parametrize("scale", ["dynamik", True])
def test_loss_scale_that_is_no_number_is_refused(scale: Any) -> None:
    with raises(ConfigError, "loss-scale-not-a-number"):
        amp.GradScaler(scale)


@pytest.mark.parametrize(
    "limits",
    [
        {"min_loss_scale": 2.0**-15},
        {"min_loss_scale": 0.0},
        {"max_loss_scale": 0.0},
        {"min_loss_scale": 2.0, "max_loss_scale": 1.0},
        {"steps_per_increase": -1},
        {"steps_per_increase": 0},
        {"overflow_tolerance": -0.1},
    ],
)
def test_limits_without_room_are_refused(limits: dict[str, Any]) -> None:
    with raises(ConfigError, "loss-scale-limits"):
        amp.GradScaler("dynamic", **limits)


def test_defaults_are_the_vendors() -> None:
    scaler = amp.GradScaler("dynamic")
    assert scaler.rule == LossScaleRule(2000, 2.0**-14, 2.0**15, 0.0)
    assert scaler.get_scale() == 2.0**15
    assert amp.GradScaler().get_scale() == 1.0
    assert amp.GradScaler("dynamic", init_scale=2.0**20).get_scale() == 2.0**15


def test_loss_is_not_scaled_outside_of_a_trace() -> None:
    """The user's process has no gradients to divide."""
    scaler = amp.GradScaler(8.0)
    assert scaler.scale(torch.tensor(2.0)) == 2.0
    assert scaler.get_scale() == 8.0


def test_state_continues_in_another_scaler() -> None:
    """Numbers and scalar tensors are taken; what is missing stays."""
    scaler = amp.GradScaler("dynamic")
    scaler.current = LossScale(4.0, 3, 1, 2)
    other = amp.GradScaler("dynamic")
    other.load_state_dict({k: torch.tensor(v) for k, v in scaler.state_dict().items()})
    assert other.state_dict() == scaler.state_dict()
    other.load_state_dict({"loss_scale": 1.0})
    assert other.current == LossScale(1.0, 3, 1, 0)  # of the steps that this process counts
    assert other.get_num_skipped_steps() == 2
    assert amp.GradScaler(2.0).state_dict() == {"loss_scale": 2.0}


def test_update_takes_no_scale() -> None:
    new: Any = 2.0
    with raises(ConfigError, "new-scale-given"):
        amp.GradScaler("dynamic").update(new)


class Steep(Regression):
    """Its first gradients are infinite: the loss is beyond fp32 at scales above 1."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[1](torch.tanh(self.layers[0](x)))
        losses = (hidden - y).square().mean(1)
        return (losses * (3e38 / losses.detach())).mean()  # of one sample


class Broken(Regression):
    """Its loss is not a number."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) * float("nan")


def scaled_step(model: torch.nn.Module, scaler: amp.GradScaler, lr: float = 1e-40) -> Any:
    optimizer = cstorch.optim.SGD(model.parameters(), lr=lr)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        amp.optimizer_step(loss, optimizer, scaler)
        seen_scale(scaler.get_scale(), scaler.get_num_skipped_steps())
        return loss

    return step


SEEN: list[tuple[float, int]] = []


@cstorch.step_closure
def seen_scale(scale: torch.Tensor, skipped: torch.Tensor) -> None:
    SEEN.append((scale.item(), int(skipped.item())))


def test_closures_get_the_scale_of_the_next_step() -> None:
    """Losses of skipped steps are no reason to stop; afterwards the scaler has the same state."""
    SEEN.clear()
    with running_backend() as backend:
        model = cstorch.compile(Steep(), backend)
        scaler = amp.GradScaler("dynamic", init_scale=8.0, steps_per_increase=2)
        losses(scaled_step(model, scaler), executor(3, activation_steps=1))
        assert SEEN == [(4.0, 1), (2.0, 2), (1.0, 3)]
        assert scaler.get_scale() == 1.0
        assert scaler.get_num_skipped_steps() == 3
        masters = cluster_of(backend).do(
            ReadWeights([name for name, _ in model.named_parameters()])
        )
        for name, parameter in Steep().named_parameters():
            assert (masters[name] == parameter.detach().numpy()).all()


def test_overflow_at_the_minimum_stops_the_run() -> None:
    """A loss that is not a number is skipped as long as a smaller scale could help."""
    with running_backend() as backend:
        model = cstorch.compile(Broken(), backend)
        scaler = amp.GradScaler("dynamic", init_scale=4.0, min_loss_scale=2.0)
        loop = executor(3, activation_steps=1)
        with raises(ApplianceNanError, "loss-scale-exhausted"):
            losses(scaled_step(model, scaler), loop)
        assert scaler.get_scale() == 2.0  # after the first step


def test_skipped_steps_of_a_loaded_checkpoint_are_added() -> None:
    """A program that loads its state counts steps from 1; schedules and updates follow those."""
    SEEN.clear()
    with running_backend() as backend:
        model = cstorch.compile(Steep(), backend)
        scaler = amp.GradScaler("dynamic", init_scale=8.0)
        scaler.load_state_dict({"loss_scale": 2.0, "num_skipped_steps": 7})
        losses(scaled_step(model, scaler), executor(2, activation_steps=1))
        assert SEEN == [(1.0, 8), (0.5, 9)]
        assert scaler.state_dict()["num_skipped_steps"] == 9


def test_skipped_steps_of_another_training_are_refused() -> None:
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        scaler = amp.GradScaler("dynamic")
        scaler.current = LossScale(1.0, num_skipped_steps=7)
        with raises(ConfigError, "loss-scale-of-another-run"):
            losses(scaled_step(model, scaler), executor(1))


def plain_step(scaler: Any, optimizer: Any) -> None:
    optimizer.step()
    scaler.update()


def step_without_update(scaler: Any, optimizer: Any) -> None:
    scaler.step(optimizer)


def clip_first(scaler: Any, optimizer: Any) -> None:
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    step_without_update(scaler, optimizer)


@pytest.mark.parametrize(
    ("update", "code"),
    [
        (plain_step, "loss-scale-left-out"),
        (step_without_update, "loss-scale-left-out"),
        (clip_first, "clipped-before-unscaled"),
    ],
)
def test_calls_that_bypass_the_scale_are_refused(update: Callable[..., None], code: str) -> None:
    """On the real machine these would apply scaled gradients."""
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
        scaler = amp.GradScaler("dynamic")

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> None:
            scaler.scale(model(**batch)).backward()
            update(scaler, optimizer)

        with raises(ApplianceCompilationError, code):
            losses(step, executor(1))


def test_scaler_clips_by_its_own_norm() -> None:
    """``max_gradient_norm`` of the scaler is that of ``clip_grad_norm_``."""
    digests = []
    for own, limits in ((0.05, {}), (None, {"max_gradient_norm": 0.05})):
        with running_backend() as backend:
            model = cstorch.compile(Regression(), backend)
            optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
            scaler = amp.GradScaler("dynamic", max_gradient_norm=own)

            @cstorch.trace
            def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
                loss: torch.Tensor = model(**batch)  # noqa: B023
                amp.optimizer_step(loss, optimizer, scaler, **limits)  # noqa: B023
                return loss

            losses(step, executor(2))
            digests.append(backend.weights_digest())
    assert digests[0] == digests[1]
