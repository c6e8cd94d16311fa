"""Closures run after the step, where values come back, with tensors that have values."""

import pytest
import torch

import cstorch
from tests.support.cstorch_program import evaluation_step, executor, losses, run, training_step
from tests.support.local_machine import Regression


@pytest.mark.parametrize(
    ("num_steps", "activation_steps", "expected"),
    [(3, None, [1, 2, 3]), (5, 2, [2, 4, 5]), (4, 100, [4]), (5, [1, 4], [1, 4, 5])],
)
def test_step_closures_run_on_activation_steps(num_steps, activation_steps, expected, backend):
    """Every so many steps, or those that were named, and always the last."""
    seen = []

    @cstorch.step_closure
    def note(loss, iteration):
        assert isinstance(loss, torch.Tensor)
        assert loss.dtype == torch.float32
        seen.append(iteration)

    step = evaluation_step(backend)
    loop = executor(num_steps, activation_steps=activation_steps)
    for batch in loop:
        note(step(batch), loop.user_iteration)
    assert seen == expected


def test_values_are_those_of_their_step(backend):
    """With few activation steps the same values come back as with all of them."""
    every = losses(evaluation_step(backend), executor(4))
    assert losses(evaluation_step(backend), executor(4, activation_steps=2)) == every[1::2]


@pytest.mark.parametrize(
    ("checkpoint_steps", "expected"),
    [(2, [2, 4, 5]), (5, [5]), (100, [5]), (0, []), (None, []), ([1, 3], [1, 3])],
)
def test_checkpoint_closures_run_on_checkpoint_steps(checkpoint_steps, expected, backend):
    """Multiples and the last step; a list is taken as it is; 0 means never."""
    saved = []

    @cstorch.checkpoint_closure
    def save(iteration):
        saved.append((iteration, backend.global_step))

    step = training_step(backend)
    loop = executor(5, checkpoint_steps=checkpoint_steps)
    for batch in loop:
        step(batch)
        save(loop.user_iteration)
    assert saved == [(iteration, iteration) for iteration in expected]


def test_a_closure_inside_the_trace_runs_for_every_step(backend):
    """It was recorded with the step; values that are no tensors come as they are."""
    seen = []

    @cstorch.step_closure
    def note(name, loss):
        seen.append((name, loss.item()))

    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch):
        loss = model(**batch)
        note("inside", loss * 2)
        return loss

    outside = losses(step, executor(2))
    assert seen == [("inside", pytest.approx(2 * loss)) for loss in outside]


def test_closures_run_in_the_order_of_their_calls(backend):
    """All of one step before any of the next."""
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
def test_a_closure_outside_of_a_loop_is_refused(kind, backend):
    """There is no step that it could follow."""

    @kind
    def report():
        """Not reached."""

    with pytest.raises(RuntimeError, match="report is a closure and was called outside"):
        report()


def test_what_a_closure_raises_ends_the_loop(backend):
    """And the next loop starts without it."""
    step = evaluation_step(backend)

    @cstorch.step_closure
    def fail(loss):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(executor(2), lambda batch: fail(step(batch)))
    assert backend.loop is None
    assert len(losses(step, executor(2))) == 2


def test_a_closure_keeps_its_name():
    """For whoever reads a traceback."""

    @cstorch.step_closure
    def report_loss():
        """What it does."""

    assert (report_loss.__name__, report_loss.__doc__) == ("report_loss", "What it does.")
