"""Closures of an executor loop: when they run, and with which values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    model_of,
    run,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ProgramOrderError

Batch = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("num_steps", "activation_steps", "expected"),
    [(3, None, [1, 2, 3]), (5, 2, [2, 4, 5]), (4, 100, [4]), (5, [1, 4], [1, 4, 5])],
)
def test_step_closures_run_on_activation_steps(
    num_steps: int, activation_steps: Any, expected: Any, backend: cstorch.Backend
) -> None:
    """They run at an interval or at listed steps, and always at the last one."""
    seen = []

    @cstorch.step_closure
    def note(loss: torch.Tensor, iteration: int) -> None:
        assert isinstance(loss, torch.Tensor)
        assert loss.dtype == torch.float32
        seen.append(iteration)

    step = evaluation_step(backend)
    loop = executor(num_steps, activation_steps=activation_steps)
    for batch in loop:
        note(step(batch), loop.user_iteration)
    assert seen == expected


def test_closure_values_do_not_depend_on_activation_steps(backend: cstorch.Backend) -> None:
    """Fewer activation steps give a subset of the same values."""
    every = losses(evaluation_step(backend), executor(4))
    assert losses(evaluation_step(backend), executor(4, activation_steps=2)) == every[1::2]


@pytest.mark.parametrize(
    ("checkpoint_steps", "expected"),
    [(2, [2, 4, 5]), (0, []), ([1, 3], [1, 3]), *nightly((5, [5]), (100, [5]), (None, []))],
)
def test_checkpoint_closures_run_on_checkpoint_steps(
    checkpoint_steps: Any, expected: Any, backend: cstorch.Backend
) -> None:
    """They run at multiples and the last step, or at listed steps; 0 means never."""
    saved = []

    @cstorch.checkpoint_closure
    def save(iteration: int) -> None:
        saved.append((iteration, backend.global_step))

    step = training_step(backend)
    loop = executor(5, checkpoint_steps=checkpoint_steps)
    for batch in loop:
        step(batch)
        save(loop.user_iteration)
    assert saved == [(iteration, iteration) for iteration in expected]


def test_closure_inside_the_trace_runs_for_every_step(backend: cstorch.Backend) -> None:
    """It is recorded with the step; values that are not tensors are passed unchanged."""
    seen = []

    @cstorch.step_closure
    def note(name: str, loss: torch.Tensor) -> None:
        seen.append((name, loss.item()))

    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss = model(**batch)
        note("inside", loss * 2)
        return loss

    outside = losses(step, executor(2))
    assert [name for name, _ in seen] == ["inside"] * 2
    assert [loss for _, loss in seen] == pytest.approx([2 * loss for loss in outside])


def test_closures_run_in_the_order_of_their_calls(backend: cstorch.Backend) -> None:
    """All closures of a step run before any of the next."""
    seen = []
    first = cstorch.step_closure(lambda loss: seen.append("first"))
    second = cstorch.step_closure(lambda loss: seen.append("second"))
    step = evaluation_step(backend)
    for batch in executor(2):
        loss = step(batch)
        first(loss)
        second(loss)
    assert seen == ["first", "second"] * 2


@pytest.mark.parametrize("kind", [cstorch.step_closure, cstorch.checkpoint_closure])
def test_closure_outside_of_a_loop_is_refused(
    kind: Callable[[Callable[..., Any]], Callable[..., None]], backend: cstorch.Backend
) -> None:
    """There is no step that it could follow."""

    @kind
    def report() -> None:
        """Not reached."""

    with raises(ProgramOrderError, "closure-outside-loop"):
        report()


@pytest.mark.parametrize("device", ["CSX", "CPU"])
def test_checkpoint_closure_saves_the_initial_state(device: str, tmp_path: Path) -> None:
    """Before the first step it runs at once; the file is one to start from."""
    with running_backend(device=device) as backend:
        step = training_step(backend, momentum=0.5)
        model = model_of(backend)
        initial = {name: value.clone() for name, value in model.state_dict().items()}

        @cstorch.checkpoint_closure
        def save(number: int) -> None:
            states = {"model": model.state_dict(), "global_step": number}
            cstorch.save(states, tmp_path / f"{number}.mdl")

        save(0)
        expected = losses(step, executor(2))
        with raises(ProgramOrderError, "closure-outside-loop"):
            save(2)
    states = cstorch.load(tmp_path / "0.mdl")
    assert states["global_step"] == 0
    assert all(torch.equal(states["model"][name], value) for name, value in initial.items())
    with running_backend(device=device) as backend:
        step = training_step(backend, momentum=0.5)
        backend.restore(tmp_path / "0.mdl", ("model",))
        assert losses(step, executor(2)) == expected


def test_error_in_a_closure_ends_the_loop(backend: cstorch.Backend) -> None:
    """The next loop starts without the failed closure."""
    step = evaluation_step(backend)

    @cstorch.step_closure
    def fail(loss: torch.Tensor) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(executor(2), lambda batch: fail(step(batch)))
    assert backend.session.loop is None
    assert len(losses(step, executor(2))) == 2


def test_closure_keeps_its_name() -> None:
    """Tracebacks show the user's function name."""

    @cstorch.step_closure
    def report_loss() -> None:
        """Report the loss."""

    assert (report_loss.__name__, report_loss.__doc__) == ("report_loss", "Report the loss.")
