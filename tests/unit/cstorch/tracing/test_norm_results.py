"""Results that a step computes from norms of weights and gradients, as callbacks log them."""

from __future__ import annotations

import pytest
import torch

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import batches, executor, losses, running_backend
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError

Batch = dict[str, torch.Tensor]

FROZEN = "layers.0.bias"
MAX_NORM = 0.1


def _model() -> Regression:
    model = Regression()
    model.get_parameter(FROZEN).requires_grad_(False)
    return model


def _log_norms(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return norms in the ways of a trainer's callback: sums in place, roots, one by one."""
    named = dict(model.named_parameters())
    weights = torch.tensor(0.0)
    for parameter in named.values():
        weights += torch.pow(torch.norm(parameter), 2.0)
    total = torch.tensor(0.0)
    found = {"weights": torch.sqrt(weights), "frozen": named[FROZEN].norm()}
    for name, parameter in named.items():
        if parameter.grad is not None:
            total += torch.pow(torch.norm(parameter.grad), 2.0)
            found[name] = parameter.grad.float().square().sum()
    found["gradients"] = torch.sqrt(total)
    found["each"] = torch.stack([p.grad.norm() for p in named.values() if p.grad is not None])
    return found


def _plain(num_steps: int) -> list[dict[str, torch.Tensor]]:
    """Return the norms of every step of a plain loop."""
    model = _model()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    seen = []
    for batch in batches()[:num_steps]:
        model(**batch).backward()
        seen.append({name: x.detach().clone() for name, x in _log_norms(model).items()})
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
    return seen


@pytest.mark.parametrize(("device", "num_csx"), [("CSX", 1), ("CSX", 2), ("CPU", 1)])
def test_norms_of_a_step_equal_those_of_a_plain_loop(device: str, num_csx: int) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    @cstorch.step_closure
    def note(norms: dict[str, torch.Tensor]) -> None:
        seen.append(norms)

    with running_backend(Shape(num_csx), device) as backend:
        model = cstorch.compile(_model(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            note(_log_norms(model))
            torch.nn.utils.clip_grad_norm_(list(model.parameters()), MAX_NORM)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses(step, executor(3))
    plain = _plain(3)
    assert [set(norms) for norms in seen] == [set(norms) for norms in plain]
    for norms, wanted in zip(seen, plain, strict=True):
        for name, value in wanted.items():
            torch.testing.assert_close(norms[name], value, rtol=2e-6, atol=0.0)


def test_norms_with_a_loss_scale_are_those_of_unscaled_gradients() -> None:
    seen: list[float] = []

    @cstorch.step_closure
    def note(norm: torch.Tensor) -> None:
        seen.append(norm.item())

    with running_backend(Shape(1)) as backend:
        model = cstorch.compile(_model(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)
        scaler = cstorch.amp.GradScaler(loss_scale="dynamic", init_scale=2.0**10)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            note(_log_norms(model)["gradients"])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            return loss

        losses(step, executor(1))
    assert seen == pytest.approx([_plain(1)[0]["gradients"].item()], rel=2e-6)


@pytest.mark.parametrize("with_loss", [True, False])
def test_weights_have_norms_in_evaluation(backend: cstorch.Backend, with_loss: bool) -> None:
    model = cstorch.compile(_model(), backend)

    @cstorch.trace
    def step(batch: Batch) -> list[torch.Tensor]:
        loss = model(**batch)
        norm = dict(model.named_parameters())[FROZEN].norm()
        return [norm, loss] if with_loss else [norm]

    seen: list[float] = []
    note = cstorch.step_closure(lambda results: seen.append(results[0].item()))
    for batch in executor(2):
        note(step(batch))
    wanted = _model().get_parameter(FROZEN).norm().item()
    assert seen == pytest.approx([wanted] * 2, rel=1e-6)


@pytest.mark.parametrize("of", ["sum", "largest", "part", "ratio"])
def test_other_results_from_gradients_are_refused(backend: cstorch.Backend, of: str) -> None:
    """A system has the gradients of a micro-batch only."""
    model = cstorch.compile(Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

    @cstorch.trace
    def step(batch: Batch) -> list[torch.Tensor]:
        loss: torch.Tensor = model(**batch)
        loss.backward()
        gradient = dict(model.named_parameters())["layers.0.weight"].grad
        assert gradient is not None
        results = {
            "sum": gradient.sum(),
            "largest": gradient.abs().max(),
            "part": gradient[0].norm(),
            "ratio": gradient.norm() / loss,
        }
        optimizer.step()
        return [loss, results[of]]

    with raises(ApplianceCompilationError, "result-from-gradient"):
        losses(step, executor(1))
