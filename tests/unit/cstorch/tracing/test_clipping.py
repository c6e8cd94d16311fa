"""Torch's clipping functions inside a traced step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import cstorch
from appliance.coordinator.commands import ReadWeights
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    cluster_of,
    executor,
    losses,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ApplianceCompilationError

Clip = Callable[[nn.Module], object]


def clip_once(model: nn.Module) -> None:
    """Clip all gradients, and none, as a program does that has used up a generator of them."""
    clip_grad_norm_(model.parameters(), 0.1)
    clip_grad_norm_([], 0.1)


CLIPS: dict[str, Clip] = {
    "norm, then of nothing": clip_once,
    "norm, by module": lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "norm, by name": lambda model: clip_grad_norm_(model.parameters(), 0.1),
    "value, by module": lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 0.01),
    "value, by name": lambda model: clip_grad_value_(list(model.parameters()), clip_value=0.01),
}


def expected_after_one_step(clip: Clip) -> dict[str, torch.Tensor]:
    """Return the weights of plain PyTorch after a step on the whole batch with clipping."""
    model, batch = Regression(), batches()[0]
    rows = len(batch["x"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(rows):
        (model(**{name: t[i : i + 1] for name, t in batch.items()}) / rows).backward()
    clip(model)
    optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("how", CLIPS)
def test_clipping_is_recorded_under_any_import(how: str, backend: cstorch.Backend) -> None:
    """It acts on the gradient of the whole batch, not on that of each micro-batch."""
    losses(training_step(backend, CLIPS[how]), executor(1))
    expected = expected_after_one_step(CLIPS[how])
    masters = cluster_of(backend).do(ReadWeights(list(expected)))
    found = {name: torch.from_numpy(array) for name, array in masters.items()}
    unclipped = expected_after_one_step(lambda model: None)
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, atol=1e-7)
    assert not all(torch.allclose(expected[name], unclipped[name]) for name in expected)


def test_clipping_of_nothing_is_told(
    backend: cstorch.Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """A program may think that it clips."""
    losses(training_step(backend, CLIPS["norm, then of nothing"]), executor(1))
    assert "clips no gradients" in caplog.text


def test_clipping_acts_at_once_after_the_trace(backend: cstorch.Backend) -> None:
    """Outside of a trace gradients are clipped in this process."""
    losses(training_step(backend, CLIPS["norm, by name"]), executor(1))
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    assert clip_grad_norm_([parameter], 1.0) == 5.0
    assert parameter.grad.norm() < 1.01


def test_clipping_some_of_the_gradients_is_refused(backend: cstorch.Backend) -> None:
    """MemoryX clips by the norm of all gradients."""
    with raises(ApplianceCompilationError, "some-gradients-clipped"):
        losses(
            training_step(
                backend,
                lambda model: clip_grad_norm_(model.get_submodule("layers.0").parameters(), 1.0),
            ),
            executor(1),
        )


def test_gradients_of_another_model_are_not_clipped_in_a_step(backend: cstorch.Backend) -> None:
    """The step would do it once, when it is recorded."""
    other = Regression()
    for parameter in other.parameters():
        parameter.grad = torch.full_like(parameter, 5.0)
    with raises(ApplianceCompilationError, "op-without-kernel"):
        losses(
            training_step(backend, lambda model: clip_grad_norm_(other.parameters(), 0.1)),
            executor(1),
        )


def test_gradients_of_two_models_are_not_clipped_together(backend: cstorch.Backend) -> None:
    """Torch scales both by the norm of both."""
    other = list(Regression().parameters())
    with raises(ApplianceCompilationError, "some-gradients-clipped") as caught:
        losses(
            training_step(backend, lambda m: clip_grad_norm_([*m.parameters(), *other], 1.0)),
            executor(1),
        )
    assert "test_clipping.py" in str(caught.value.where)


def test_clipping_by_another_norm_is_refused(backend: cstorch.Backend) -> None:
    """Weight servers agree on the L2 norm only."""
    with raises(ApplianceCompilationError, "clipped-by-other-norm"):
        losses(
            training_step(backend, lambda m: clip_grad_norm_(m.parameters(), 1.0, norm_type=1)),
            executor(1),
        )
