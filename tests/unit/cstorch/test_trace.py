"""Traced steps: recording, installation, values, refusals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    run,
    running_backend,
    training_step,
)
from tests.support.programs.kernels import run_eagerly
from tests.support.roles.local_machine import FP32, Regression, random_batches
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError, ConfigError, WaferStreamError

Batch = dict[str, torch.Tensor]


def test_trace_in_the_program_of_the_package_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    """The program runs as it is written, and its loss falls."""
    program = textwrap.dedent((cstorch.__doc__ or "").split("::\n", 1)[1])
    torch.manual_seed(0)
    try:
        exec(program, {})
    finally:
        backends.reset()
    (first, start), (last, end) = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (first, last) == ("10", "20")
    assert float(end) < float(start)
    with pytest.raises(RuntimeError):
        cstorch.current_backend()


def test_a_traced_method_has_a_trace_for_each_object(backend: cstorch.Backend) -> None:
    model = cstorch.compile(Regression(), backend)

    class Trainer:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @cstorch.trace
        def step(self, batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch) * self.factor
            return loss

    one, two = Trainer(1), Trainer(2)
    assert one.step is one.step is not two.step
    single, double = (losses(trainer.step, executor(1)) for trainer in (one, two))
    assert double == [2 * value for value in single]


def test_trace_records_the_body_in_two_steps(backend: cstorch.Backend) -> None:
    """In the first one for the batch, too; later calls hand out the same placeholders."""
    note = Mock()
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch) -> torch.Tensor:
        note()
        return model(**batch)

    outputs = [step(batch) for batch in executor(3)]
    assert note.call_count == 3
    assert len({value.item() for value in outputs}) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: ((batch, 2.0), {}),
        lambda batch: ((batch, 1), {}),
        lambda batch: ((batch, 1.0), {"scale": None}),
        lambda batch: (({**batch, "y": batch["y"].double()}, 1.0), {}),
        lambda batch: (({**batch, "x": batch["x"][:1]}, 1.0), {}),
    ],
    ids=["another number", "another type", "another structure", "another dtype", "another shape"],
)
def test_later_call_with_other_arguments_is_refused(
    change: Callable[[Batch], Any], backend: cstorch.Backend
) -> None:
    """It would go on with what the first call recorded."""
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: Batch, factor: float, scale: object = None) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        return loss * factor

    calls = 0
    with raises(ApplianceCompilationError, "step-arguments-changed"):
        for batch in executor(3):
            args, kwargs = ((batch, 1.0), {}) if calls < 2 else change(batch)
            step(*args, **kwargs)
            calls += 1
    assert calls == 2


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


@pytest.mark.parametrize("num_csx", [1, 3])
def test_tensor_results_are_those_of_the_batch(num_csx: int) -> None:
    """Rows are put one after the other; other tensors are means, sums, or equal for all."""
    backends.csx.performance.micro_batch_size = 2
    batch = batches()[0]
    seen: list[Batch] = []
    with running_backend(Shape(num_csx)) as backend:
        model = Regression()
        cstorch.compile(model, backend)

        @cstorch.trace
        def step(batch: Batch) -> dict[str, torch.Tensor]:
            hidden = model.layers[0](batch["x"])
            return {
                "loss": model(**batch),
                "rows": hidden,
                "argmax": hidden.argmax(1),
                "positive": hidden > 0,
                "mean": batch["x"].mean(0),
                "count": (batch["x"] > 0).sum(0),
                "weight": model.layers[0].weight,
                "input": batch["y"],
            }

        note = cstorch.step_closure(seen.append)
        for global_batch in executor(1):
            note(step(global_batch))
    layer = Regression().layers[0]
    rows = torch.cat([layer(x) for x in batch["x"].split(2)]).detach()
    (found,) = seen
    assert torch.equal(found["rows"], rows)
    assert torch.equal(found["argmax"], rows.argmax(1))
    assert torch.equal(found["positive"], rows > 0)
    assert torch.allclose(found["mean"], batch["x"].mean(0))
    assert torch.equal(found["count"], (batch["x"] > 0).sum(0).float())
    assert torch.equal(found["weight"], layer.weight)
    assert torch.equal(found["input"], batch["y"])


def test_result_in_control_flow_of_the_step_says_what_to_do(backend: cstorch.Backend) -> None:
    """Inside the step no value is known."""
    model = cstorch.compile(Regression(), backend)
    step = cstorch.trace(lambda batch: 0 if model(**batch) > 1 else 1)
    with raises(ApplianceCompilationError, "op-depends-on-values") as caught:
        losses(step, executor())
    assert "torch.where" in str(caught.value.remedy)


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


def test_compile_only_starts_no_cluster() -> None:
    """The step is captured and compiled once, and nothing runs."""
    with running_backend(compile_only=True) as backend:
        step = training_step(backend)
        seen = losses(step, executor(100))
        assert seen == []
        assert step.kind == "train"
        assert backend.running_cluster is None


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
    assert backend.running_cluster is None
    assert compiled.program.micro_batch_size == 2
    assert optimizer is not None
    assert optimizer.rule == "SGD"
