"""CPU and GPU backends: the program of a CSX as plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import cstorch
from cstorch import backends
from cstorch.trace import TracedStep
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    ROWS,
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    model_of,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression, random_batches
from tests.support.runs.tiny_training import Shape
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import ApplianceCompilationError, ApplianceNanError, ConfigError


@pytest.fixture
def cpu() -> Iterator[cstorch.Backend]:
    """A CPU backend, shut down after the test."""
    with running_backend(device="CPU") as backend:
        yield backend


def train(device: str, checkpoint: Path) -> tuple[list[float], str, list[float]]:
    """Train four steps with momentum, evaluate, and save; the micro-batch is the whole batch."""
    with running_backend(Shape(1), device) as backend:
        backends.csx.performance.micro_batch_size = ROWS
        step, evaluate = training_step(backend, momentum=0.9), evaluation_step(backend)
        seen = losses(step, executor(4, activation_steps=2))
        evaluated = losses(evaluate, executor(2, loader(batches)))
        cstorch.save({"model": {}, "optimizer": {}, "global_step": 4}, checkpoint)
        return seen, backend.weights_digest(), evaluated


def test_program_on_cpu_gives_the_values_of_csx(tmp_path: Path) -> None:
    """Losses at activation steps, weights, evaluation and checkpoint are the same."""
    on_cpu = train("CPU", tmp_path / "cpu.mdl")
    assert on_cpu == train("csx", tmp_path / "csx.mdl")
    assert len(on_cpu[0]) == 2
    found, expected = (Reader(tmp_path / f"{device}.mdl") for device in ("cpu", "csx"))
    for state in CLUSTER_STATES.values():
        assert list(found.names(state)) == list(expected.names(state))
        for name in expected.names(state):
            assert np.array_equal(found[f"{state}.{name}"], expected[f"{state}.{name}"])


def test_resumed_run_on_cpu_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """The checkpoint may come from either device; data go on where they stopped."""
    _, digest, _ = train("CPU", tmp_path / "whole.mdl")
    with running_backend(device="CPU") as backend:
        losses(training_step(backend, momentum=0.9), executor(2))
        objects = {"model": {}, "optimizer": {}, "global_step": 2}
        cstorch.save(objects, tmp_path / "half.mdl")
    with running_backend(device="CPU") as backend:
        backend.restore(tmp_path / "half.mdl")
        losses(training_step(backend, momentum=0.9), executor(2))
        assert backend.weights_digest() == digest


def test_step_on_cpu_sees_values(cpu: cstorch.Backend) -> None:
    """Tensors have values in the step, after it, and in closures."""
    seen: list[float] = []
    model = cstorch.compile(Regression(), cpu)

    @cstorch.step_closure
    def note(loss: torch.Tensor) -> None:
        seen.append(loss.item())

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        seen.append(loss.item())
        note(loss)
        return loss

    for batch, expected in zip(executor(2), batches(), strict=False):
        assert torch.equal(batch["x"], expected["x"])
        assert step(batch).item() == seen[-1]
    assert len(seen) == 4


def norm_step(backend: cstorch.Backend, scale: float) -> TracedStep:
    """Return a step that trains with a scaled loss, and returns the norm of a gradient."""
    model = cstorch.compile(Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
    scaler = cstorch.amp.GradScaler("dynamic", init_scale=scale)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        scaler.scale(model(**batch)).backward()
        scaler.unscale_(optimizer)
        gradient = model.get_parameter("layers.0.weight").grad
        assert gradient is not None
        norm = torch.norm(gradient)
        scaler.step(optimizer)
        scaler.update()
        return norm

    return step


@pytest.mark.parametrize("device", ["CPU", "CSX"])
def test_unscaled_gradients_have_the_norm_of_plain_ones(device: str) -> None:
    """A parameter is found by name in a step, and its gradient is divided before it is read."""
    norms = []
    for scale in (1.0, 8.0):
        with running_backend(Shape(1), device) as backend:
            norms.append((losses(norm_step(backend, scale), executor(2)), backend.weights_digest()))
    assert norms[0] == norms[1]


def test_weights_on_cpu_can_be_read_and_written(cpu: cstorch.Backend) -> None:
    """Between steps the model has the trained weights, and what is written counts."""
    step = training_step(cpu)
    initial = {name: value.clone() for name, value in model_of(cpu).state_dict().items()}
    losses(step, executor(1))
    trained = model_of(cpu).state_dict()
    assert not torch.equal(trained["layers.0.weight"], initial["layers.0.weight"])
    model_of(cpu).load_state_dict(initial)
    assert losses(evaluation_step(cpu), executor(1)) == [
        pytest.approx(Regression()(**batches()[0]).item(), rel=1e-6)
    ]


def test_evaluation_on_cpu_begins_with_the_first_batch(cpu: cstorch.Backend) -> None:
    """Also where the loop can tell only after its first step that it evaluates."""
    train, evaluate = training_step(cpu), evaluation_step(cpu)
    losses(train, executor(1))
    seen: list[torch.Tensor] = []

    @cstorch.step_closure
    def note(loss: torch.Tensor) -> None:
        seen.append(loss)

    for data in (loader(), loader()):
        for batch in executor(2, data):
            note(evaluate(batch))
    model = model_of(cpu)
    expected = [model(**batch).item() for batch in batches()[:2]]
    assert seen == pytest.approx(expected * 2, rel=1e-6)


def test_mistakes_on_cpu_are_those_of_csx(cpu: cstorch.Backend) -> None:
    """The same script has the same errors."""
    model = cstorch.compile(Regression(), cpu)

    @cstorch.trace
    def untrained(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        loss.backward()
        return loss

    with raises(ApplianceCompilationError, "gradients-without-optimizer"):
        losses(untrained, executor())
    with raises(ApplianceCompilationError, "step-outside-loop"):
        untrained(batches()[0])
    broken = loader(lambda: [{n: t * math.nan for n, t in random_batches(1, ROWS)[0].items()}])
    with raises(ApplianceNanError, "loss-not-finite"):
        losses(evaluation_step(cpu), executor(1, broken))


def test_host_backends_say_what_they_are(cpu: cstorch.Backend) -> None:
    """A program asks them."""
    assert (cpu.is_csx, cpu.is_cpu, cpu.is_gpu) == (False, True, False)
    assert (cpu.backend_type, cpu.torch_device) == ("CPU", torch.device("cpu"))
    assert not cstorch.use_cs()


def test_gpu_without_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy names the CPU backend."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises(ConfigError, "no-cuda-device"):
        cstorch.backend("GPU")


@pytest.mark.parametrize("option", ["compile_only", "validate_only"])
def test_compile_only_is_refused_on_cpu(option: str) -> None:
    """There is nothing to compile."""
    with raises(ConfigError, "compile-only-not-csx"):
        cstorch.backend("CPU", None, **{option: True})


def test_cbfloat16_is_refused_on_cpu(cpu: cstorch.Backend) -> None:
    """PyTorch has no such type, and the vendor's CPU package has none either."""
    cstorch.amp.set_half_dtype("cbfloat16")
    cstorch.amp.enable_mixed_precision()
    with raises(ConfigError, "cbfloat16-not-csx"):
        losses(training_step(cpu), executor(1))


def test_stochastic_rounding_is_refused_on_cpu(cpu: cstorch.Backend) -> None:
    """Its kernels round to nearest, so the result would be another one."""
    cstorch.amp.enable_mixed_precision()
    cstorch.backends.csx.precision.stochastic_rounding = True
    with raises(ConfigError, "stochastic-rounding-not-csx"):
        losses(training_step(cpu), executor(1))
