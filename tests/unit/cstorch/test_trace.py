"""Traced steps and closures: recording, installation, values, refusals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import cstorch
from cstorch import backends
from cstorch.optim.lr_scheduler import LRScheduler
from cstorch.trace import TracedStep
from tests.support.cstorch_program import (
    batches,
    cluster_of,
    evaluation_step,
    executor,
    loader,
    losses,
    run,
    running_backend,
    training_step,
)
from tests.support.errors import raises
from tests.support.kernels import run_eagerly
from tests.support.local_machine import FP32, Regression, random_batches
from wsc.core.errors import ApplianceCompilationError, ConfigError, WaferStreamError

Batch = dict[str, torch.Tensor]
Clip = Callable[[nn.Module], object]
MakeStep = Callable[[cstorch.Backend], TracedStep]


def test_trace_in_the_program_of_the_package_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    """The program runs as it is written, and its loss falls."""
    program = textwrap.dedent((cstorch.__doc__ or "").split("::\n", 1)[1])
    try:
        exec(program, {})
    finally:
        backends.reset()
    (first, start), (last, end) = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (first, last) == ("10", "20")
    assert float(end) < float(start)
    with pytest.raises(RuntimeError):
        cstorch.current_backend()


def test_trace_records_the_body_once(backend: cstorch.Backend) -> None:
    """Later calls hand out the same placeholders; the cluster does the work."""
    calls = []
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        calls.append(batch)
        return model(**batch)

    outputs = [step(batch) for batch in executor(3)]
    assert len(calls) == 1
    assert outputs[0] is outputs[1] is outputs[2]


def test_step_outside_of_a_loop_is_refused(backend: cstorch.Backend) -> None:
    """A step needs the data of a loop."""
    with raises(ApplianceCompilationError, "step-outside-loop"):
        training_step(backend)(batches()[0])


def test_step_without_a_model_is_refused(backend: cstorch.Backend) -> None:
    """MemoryX would hold no weights."""
    step = cstorch.trace(lambda batch: batch["x"].sum())
    with raises(ApplianceCompilationError, "no-model"):
        losses(step, executor())


def test_step_without_a_tensor_is_refused(backend: cstorch.Backend) -> None:
    """A micro-batch is cut from tensor arguments."""
    model = cstorch.compile(Regression(), backend)
    batch = batches()[0]
    step = cstorch.trace(lambda: model(**batch))
    with raises(ApplianceCompilationError, "step-without-tensor"):
        run(executor(), lambda _: step())


def test_tensor_from_outside_the_batch_is_refused(backend: cstorch.Backend) -> None:
    """The cluster would not know its value at the next step."""
    step = training_step(backend)
    with raises(ConfigError, "tensor-not-in-batch") as caught:
        run(executor(), lambda batch: step({"x": batch["x"] * 2, "y": batch["y"]}))
    assert "input function" in str(caught.value.remedy)


def test_step_arguments_may_have_any_structure(backend: cstorch.Backend) -> None:
    """Tensors of the batch may be mixed with any other values."""
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(pair: tuple[torch.Tensor, ...], scale: float, *, name: str) -> torch.Tensor:
        assert name == "loss"
        y, x = pair
        return model(x, y) * scale

    loop = executor(1)
    for batch in loop:
        step((batch["y"], batch["x"]), 2.0, name="loss")
    expected = losses(evaluation_step(backend), executor(1))
    assert loop.results[0].values[0] == pytest.approx(2 * expected[0])


def test_step_result_that_is_no_scalar_is_refused(backend: cstorch.Backend) -> None:
    """The error states the shape."""
    model = cstorch.compile(Regression(), backend)
    step = cstorch.trace(lambda batch: (model(**batch), batch["x"]))
    with raises(ApplianceCompilationError, "result-not-scalar") as caught:
        losses(step, executor())
    assert caught.value.value == "shape (1, 4)"


def test_step_results_keep_their_structure(backend: cstorch.Backend) -> None:
    """Every tensor in the result is replaced by a placeholder."""
    model = cstorch.compile(Regression(), backend)
    seen = []

    @cstorch.trace
    def step(batch: Batch) -> dict[str, Any]:
        loss = model(**batch)
        return {"loss": loss, "more": [loss * 2, "text"]}

    @cstorch.step_closure
    def note(out: dict[str, Any]) -> None:
        seen.append((out["loss"].item(), out["more"][0].item(), out["more"][1]))

    for batch in executor(1):
        note(step(batch))
    ((loss, double, text),) = seen
    assert (double, text) == (pytest.approx(2 * loss), "text")


def test_gradients_without_an_optimizer_are_refused(backend: cstorch.Backend) -> None:
    """A training step that trains nothing is a mistake."""
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss = model(**batch)
        loss.backward()
        return loss

    with raises(ApplianceCompilationError, "gradients-without-optimizer"):
        losses(step, executor())


def test_two_optimizers_are_refused(backend: cstorch.Backend) -> None:
    """A step has one update."""
    model = cstorch.compile(Regression(), backend)
    optimizers = [cstorch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]

    @cstorch.trace
    def step(batch: Batch) -> None:
        model(**batch).backward()
        for optimizer in optimizers:
            optimizer.step()

    with raises(ApplianceCompilationError, "optimizer-stepped-twice"):
        losses(step, executor())


def test_a_second_model_is_refused(backend: cstorch.Backend) -> None:
    """MemoryX holds the weights of one model."""
    cstorch.compile(Regression(), backend)
    with raises(WaferStreamError, "second-model"):
        cstorch.compile(Regression(), backend)


def test_two_steps_in_one_loop_are_refused(backend: cstorch.Backend) -> None:
    """A loop runs one traced step."""
    train, evaluate = training_step(backend), evaluation_step(backend)
    with raises(ConfigError, "two-steps-in-one-loop"):
        run(executor(), lambda batch: (train(batch), evaluate(batch)))


def test_an_evaluation_leaves_the_weights_alone(backend: cstorch.Backend) -> None:
    """Every evaluation reads its batches from the first one."""
    train, evaluate = training_step(backend), evaluation_step(backend)
    losses(train, executor(2))
    digest = backend.weights_digest()
    first = losses(evaluate, executor(2))
    assert losses(evaluate, executor(2)) == first
    assert backend.weights_digest() == digest
    assert backend.global_step == 2


def test_loss_is_the_mean_over_micro_batches(backend: cstorch.Backend) -> None:
    """Averaged over the micro-batches of the whole batch."""
    (loss,) = losses(evaluation_step(backend), executor(1))
    batch = batches()[0]
    single = [{name: t[i : i + 1] for name, t in batch.items()} for i in range(len(batch["x"]))]
    expected = [float(run_eagerly(Regression(), one, FP32, 1)[0]) for one in single]
    assert loss == pytest.approx(sum(expected) / len(expected), rel=1e-6)


def other_batches() -> list[dict[str, torch.Tensor]]:
    return [{name: t * 100 for name, t in batch.items()} for batch in batches()]


def test_step_reads_the_loader_of_its_loop(backend: cstorch.Backend) -> None:
    """The same traced step on other data gives the losses of those data."""
    evaluate = evaluation_step(backend)
    first = losses(evaluate, executor(2))
    other = losses(evaluate, executor(2, loader(other_batches)))
    assert min(other) > 100 * max(first)
    assert losses(evaluate, executor(2)) == first


def test_two_steps_of_a_mode_take_turns(backend: cstorch.Backend) -> None:
    """Each call runs its own program."""
    model = cstorch.compile(Regression(), backend)
    single = cstorch.trace(lambda batch: model(**batch))
    double = cstorch.trace(lambda batch: model(**batch) * 2)
    data = loader()
    found = [losses(step, executor(1, data))[0] for step in (single, double, single, double)]
    assert found[0] == found[2]
    assert found[1] == found[3] == pytest.approx(2 * found[0])


def step_and_scheduler(backend: cstorch.Backend) -> tuple[TracedStep, LRScheduler]:
    """Return a step with momentum whose learning rate falls by 0.01 a step, and its scheduler."""
    model = cstorch.compile(backend.model or Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
    scheduler = cstorch.optim.lr_scheduler.LinearLR(
        optimizer, initial_learning_rate=0.1, end_learning_rate=0.0, total_iters=10
    )

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return step, scheduler


def scheduled_step(backend: cstorch.Backend) -> TracedStep:
    """Return a traced step with momentum and a falling learning rate."""
    return step_and_scheduler(backend)[0]


@pytest.mark.parametrize("make_step", [partial(training_step, momentum=0.9), scheduled_step])
def test_optimizer_state_survives_another_loader(
    make_step: Callable[[cstorch.Backend], TracedStep],
) -> None:
    """Momentum goes on when the next epoch comes from another loader."""

    def digest(*sources: Callable[[], Any]) -> str:
        with running_backend() as backend:
            step = make_step(backend)
            for source in sources:
                losses(step, executor(3 // len(sources), loader(source)))
            return backend.weights_digest()

    same = [lambda i=i: batches() for i in range(3)]
    assert digest(*same) == digest(batches)


def test_scheduler_counts_the_steps_done(backend: cstorch.Backend) -> None:
    """The count does not depend on how often the step was recorded."""
    step, scheduler = step_and_scheduler(backend)
    seen = []

    @cstorch.step_closure
    def note() -> None:
        seen.append(scheduler.get_last_lr()[0])

    for loop in (executor(4, activation_steps=2), executor(1)):
        for batch in loop:
            step(batch)
            note()
    assert seen == pytest.approx([0.08, 0.06, 0.05])
    assert scheduler.state_dict() == {"last_epoch": 5}


def stepped_by(make_scheduler: Callable[[cstorch.optim.Optimizer], LRScheduler]) -> MakeStep:
    """Return a function that makes a traced step with momentum and a learning-rate scheduler."""

    def make(backend: cstorch.Backend) -> TracedStep:
        model = cstorch.compile(backend.model or Regression(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), momentum=0.9)
        scheduler = make_scheduler(optimizer)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        return step

    return make


def test_lambda_schedule_covers_every_loop() -> None:
    """A longer table for a later loop keeps momentum; the values are those of the formula."""
    make_lambda = stepped_by(
        lambda o: cstorch.optim.lr_scheduler.LambdaLR(o, 0.1, lr_lambda=lambda t: 0.5**t)
    )
    make_formula = stepped_by(lambda o: cstorch.optim.lr_scheduler.MultiplicativeLR(o, 0.1, 0.5))

    def digest(make: MakeStep, *counts: int) -> str:
        with running_backend() as backend:
            step, data = make(backend), loader()
            for count in counts:
                losses(step, executor(count, data))
            return backend.weights_digest()

    expected = digest(make_formula, 6)
    assert digest(make_lambda, 6) == expected
    assert digest(make_lambda, 1, 2, 3) == expected


CLIPS: dict[str, Clip] = {
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
    masters = cluster_of(backend).masters(list(expected))
    found = {name: torch.from_numpy(array) for name, array in masters.items()}
    unclipped = expected_after_one_step(lambda model: None)
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, atol=1e-7)
    assert not all(torch.allclose(expected[name], unclipped[name]) for name in expected)


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


def test_clipping_by_another_norm_is_refused(backend: cstorch.Backend) -> None:
    """Weight servers agree on the L2 norm only."""
    with raises(ApplianceCompilationError, "clipped-by-other-norm"):
        losses(
            training_step(backend, lambda m: clip_grad_norm_(m.parameters(), 1.0, norm_type=1)),
            executor(1),
        )


def test_compile_only_starts_no_cluster() -> None:
    """The step is captured and compiled once, and nothing runs."""
    with running_backend(compile_only=True) as backend:
        step = training_step(backend)
        seen = losses(step, executor(100))
        assert seen == []
        assert step.mode == "train"
        assert backend.cluster is None


def test_failed_trace_can_be_repeated(backend: cstorch.Backend) -> None:
    """A failed trace leaves no state behind."""
    step = training_step(backend)
    wrong = loader(lambda: random_batches(1, 1))
    with raises(ConfigError, "batch-below-systems"):
        losses(step, executor(1, wrong))
    assert len(losses(step, executor(1))) == 1


def test_compiled_for_needs_no_loop_and_no_cluster(backend: cstorch.Backend) -> None:
    """A simulation gets program and optimizer of a run, and nothing is installed."""
    compiled, optimizer = training_step(backend).compiled_for(2, batches()[0])
    assert backend.cluster is None
    assert compiled.program.micro_batch_size == 2
    assert optimizer is not None
    assert optimizer.rule == "SGD"


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
    [(2, [2, 4, 5]), (5, [5]), (100, [5]), (0, []), (None, []), ([1, 3], [1, 3])],
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

    with pytest.raises(RuntimeError, match="report is a closure and was called outside"):
        report()


def test_error_in_a_closure_ends_the_loop(backend: cstorch.Backend) -> None:
    """The next loop starts without the failed closure."""
    step = evaluation_step(backend)

    @cstorch.step_closure
    def fail(loss: torch.Tensor) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(executor(2), lambda batch: fail(step(batch)))
    assert backend.loop is None
    assert len(losses(step, executor(2))) == 2


def test_closure_keeps_its_name() -> None:
    """Tracebacks show the user's function name."""

    @cstorch.step_closure
    def report_loss() -> None:
        """Report the loss."""

    assert (report_loss.__name__, report_loss.__doc__) == ("report_loss", "Report the loss.")
