"""Step values: results of a step, before and after the step has run."""

from __future__ import annotations

import copy
import logging
import pickle
from operator import add, mul
from typing import Any

import numpy as np
import pytest
import torch

import cstorch
from cstorch.recording.step_value import LossScaleValue, StepCall, StepValue, resolve
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError
from waferstream.core.optimizer import LossScale

USES = {
    "item": (lambda value: value.item(), 2.5),
    "cpu": (lambda value: value.cpu().item(), 2.5),
    "numpy": (lambda value: value.numpy().item(), 2.5),
    "asarray": (lambda value: np.asarray(value).item(), 2.5),
    "float": (float, 2.5),
    "int": (int, 2),
    "bool": (bool, True),
    "format": (lambda value: f"{value:.3f}", "2.500"),
    "print": (str, "tensor(2.5000)"),
    "shape": (lambda value: value.shape, torch.Size([])),
    "add": (lambda value: add(1, value).item(), 3.5),
    "mul": (lambda value: mul(value, value).item(), 6.25),
    "compare": (lambda value: bool(value < 3), True),
    "torch function": (lambda value: torch.stack([value, value]).tolist(), [2.5, 2.5]),
    "detach": (lambda value: value.detach().item(), 2.5),
    "copy": (lambda value: copy.deepcopy(value).item(), 2.5),
    "pickle": (lambda value: pickle.loads(pickle.dumps(value)).item(), 2.5),
}


@pytest.mark.parametrize(("use", "expected"), USES.values(), ids=USES)
def test_step_value_acts_as_its_tensor(use: Any, expected: Any) -> None:
    """Whatever reads it gets the value of the step."""
    assert use(StepValue(1, StepCall(values=(0.0, 2.5)))) == expected


def test_step_value_without_a_run_is_refused() -> None:
    """A step that is only compiled has no results."""
    with raises(WaferStreamError, "step-value-without-run") as caught:
        StepValue(0, StepCall()).item()
    assert "step_closure" in str(caught.value.remedy)


def test_step_value_states_its_position_before_the_run() -> None:
    """A debugger that shows it runs nothing."""
    assert repr(StepValue(2, StepCall())) == (
        "<result 2 of the traced step, known after it has run>"
    )


def test_resolve_fills_in_the_values() -> None:
    """Step values in any structure become tensors; everything else stays unchanged."""
    tree = ({"loss": StepValue(1), "n": 3}, [StepValue(0), "text", None])
    named, (first, *others) = resolve(tree, StepCall(values=(0.5, 2.0)))
    assert torch.equal(named["loss"], torch.tensor(2.0))
    assert torch.equal(first, torch.tensor(0.5))
    assert (named["n"], others) == (3, ["text", None])


def test_item_in_the_loop_runs_the_steps_up_to_it(caplog: pytest.LogCaptureFixture) -> None:
    """The losses are those that closures get; the cost is noted once."""
    with running_backend() as backend:
        expected = losses(training_step(backend), executor(4))
    seen, kept = [], []
    with running_backend() as backend, caplog.at_level(logging.INFO, logger="waferstream"):
        step = training_step(backend)
        loop = executor(4, activation_steps=4)
        for batch in loop:
            loss = step(batch)
            kept.append(loss)
            if loop.user_iteration % 2 == 0:
                seen.append(loss.item())
                assert backend.global_step == loop.user_iteration
    assert seen == expected[1::2]
    assert [float(loss) for loss in kept] == expected
    assert sum("read in the loop" in record.message for record in caplog.records) == 1


def test_tensor_of_a_step_between_activation_steps_is_refused() -> None:
    """Memory is limited to what is asked for."""
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        step = cstorch.trace(lambda batch: (model(**batch), batch["x"]))
        outputs = [step(batch) for batch in executor(2, activation_steps=2)]
        assert torch.equal(outputs[1][1].cpu(), batches()[1]["x"])
        assert outputs[0][0].item() > 0
        with raises(WaferStreamError, "tensor-result-not-kept"):
            outputs[0][1].cpu()


def test_result_of_a_loop_that_was_left_is_refused() -> None:
    """Its step never ran."""
    with running_backend() as backend:
        step = evaluation_step(backend)
        for batch in executor(2):
            loss = step(batch)
            break
        with raises(WaferStreamError, "step-value-without-run"):
            loss.item()


def test_loss_scale_value_reads_the_scale_after_the_step() -> None:
    """Counts stay integers."""
    call = StepCall(values=(0.0,), loss_scale=LossScale(8.0, num_skipped_steps=3))
    scale, skipped = resolve([LossScaleValue("scale"), LossScaleValue("num_skipped_steps")], call)
    assert scale == 8.0
    assert (skipped.dtype, int(skipped)) == (torch.int64, 3)
    assert LossScaleValue("scale").of(call).item() == 8.0
    assert "scale" in repr(LossScaleValue("scale"))


def test_tensor_left_by_a_trace_has_a_shape_and_no_value(backend: cstorch.Backend) -> None:
    """A model that keeps one can be copied and pickled."""

    class Keeping(Regression):
        kept: Any = None

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.kept = x * 2
            return super().forward(x, y)

    model = Keeping()
    cstorch.compile(model, backend)
    losses(training_step(backend), executor(3))
    for kept in (model.kept, copy.deepcopy(model.kept), pickle.loads(pickle.dumps(model.kept))):
        assert kept.ndim == 2
        assert "no value" in repr([kept])
        for read in (float, str, torch.sum, lambda value: value + 1, lambda value: value.mean()):
            with raises(ApplianceCompilationError, "tensor-left-by-trace"):
                read(kept)
