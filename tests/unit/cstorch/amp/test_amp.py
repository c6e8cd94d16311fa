"""Mixed precision: dtypes of stream and kernels, and the loss scale."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cstorch
from appliance.coordinator.commands import ReadWeights
from cstorch import amp, backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    cluster_of,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.digest import weights_digest
from waferstream.core.errors import ApplianceCompilationError, ConfigError
from waferstream.numerics.precision import StreamPrecision


@pytest.fixture
def backend(backend: cstorch.Backend) -> cstorch.Backend:
    """Return a backend with mixed precision."""
    amp.enable_mixed_precision()
    return backend


@pytest.mark.parametrize(
    ("enabled", "half", "level", "expected"),
    [
        (True, "bfloat16", 1, ("bfloat16", "bfloat16")),
        (True, "bfloat16", 2, ("bfloat16", "bfloat16")),
        (True, "bfloat16", 0, ("bfloat16", "float32")),
        (True, "float16", 1, ("float16", "float16")),
        (True, "float16", 0, ("float16", "float32")),
        (True, "cbfloat16", 1, ("cbfloat16", "cbfloat16")),
        (False, "float16", 1, ("float32", "float32")),
    ],
)
def test_stream_precision_follows_the_settings(
    enabled: bool, half: Any, level: Any, expected: Any, backend: cstorch.Backend
) -> None:
    """The first dtype is that of the stream, the second that of the kernels."""
    amp.enable_mixed_precision(enabled)
    amp.set_half_dtype(half)
    backends.csx.precision.optimization_level = level
    in_half = enabled and level == 2
    stream, compute = expected
    assert amp.stream_precision() == StreamPrecision(stream, compute, softmax_in_half=in_half)
    assert amp.get_half_dtype_str() == half


@pytest.mark.parametrize(
    ("enabled", "half", "expected"),
    [
        (True, "bfloat16", StreamPrecision("float16", "float16")),
        (True, "cbfloat16", StreamPrecision("cbfloat16", "cbfloat16")),
        (False, "bfloat16", StreamPrecision("float16", "float16", casts=False)),
    ],
)
def test_model_in_a_half_type_streams_in_it(
    enabled: bool, half: Any, expected: StreamPrecision, backend: cstorch.Backend
) -> None:
    """A model of which a part is in fp32 follows the settings, as does one in fp32."""
    amp.enable_mixed_precision(enabled)
    amp.set_half_dtype(half)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).half()
    assert amp.stream_precision(model) == expected
    model[0].float()
    assert amp.stream_precision(model) == amp.stream_precision()


def test_other_half_dtypes_are_refused() -> None:
    """The setting stays unchanged."""
    for other in ("float8", torch.float32):
        with raises(ConfigError, "unknown-half-dtype"):
            amp.set_half_dtype(other)
    assert amp.get_half_dtype_str() == "bfloat16"


@pytest.mark.parametrize(
    ("value", "name", "dtype"),
    [
        ("bfloat16", "bfloat16", torch.bfloat16),
        (torch.float16, "float16", torch.float16),
        ("cbfloat16", "cbfloat16", torch.float16),
    ],
)
def test_half_dtype_has_a_name_and_a_type(
    value: Any, name: str, dtype: torch.dtype, backend: cstorch.Backend
) -> None:
    """float16 stands for cbfloat16, which torch does not have."""
    assert amp.set_half_dtype(value) == amp.get_half_dtype() == dtype
    assert amp.get_half_dtype_str() == amp.get_floating_point_dtype_str() == name
    assert amp.get_floating_point_dtype() == dtype
    assert amp.is_cbfloat16_tensor(torch.zeros(1, dtype=dtype)) == (name == "cbfloat16")
    amp.enable_mixed_precision(False)
    assert not amp.mixed_precision()
    assert amp.get_floating_point_dtype() == torch.float32
    backend.shutdown()


@pytest.mark.parametrize("shape", [(), (1,)], ids=["scalar", "vector"])
def test_cbfloat16_leaves_the_wafer_as_fp32_only(
    shape: tuple[int, ...], backend: cstorch.Backend
) -> None:
    """A scalar is cast, which is exact; another result where the flag asks for it alone."""
    amp.set_half_dtype("cbfloat16")
    model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        rounded = (loss * 0 + 1.0009765625).to(amp.get_half_dtype())  # 1 + 2**-10, a tie
        return rounded.reshape(shape)

    if shape:
        with raises(ApplianceCompilationError, "cbfloat16-result"):
            losses(step, executor(1))
        return
    (found,) = losses(step, executor(1))
    assert found == 1.0


class PlainNet(torch.nn.Module):
    """A model as people write it, which casts nothing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 4)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = torch.nn.functional.mse_loss(self.layers(x), y)
        return loss


def plain_loop() -> tuple[list[float], str]:
    """Run two steps of ``PlainNet`` on half weights under ``amp.autocast``, micro-batches of one."""
    model, precision = PlainNet(), amp.stream_precision()
    masters = dict(model.named_parameters())
    seen = []

    def part(micro_batch: dict[str, torch.Tensor], count: int) -> list[torch.Tensor]:
        cast = {
            name: master.detach().to(precision.stream_dtype).to(precision.compute_dtype)
            for name, master in masters.items()
        }
        weights = {name: weight.requires_grad_() for name, weight in cast.items()}
        with amp.autocast():
            loss = torch.func.functional_call(model, weights, kwargs=micro_batch)
        gradients = torch.autograd.grad(loss / count, list(weights.values()))
        return [loss.detach(), *(gradient.float() for gradient in gradients)]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches()[:2]:
        count = len(batch["x"])
        rows = [{name: t[i : i + 1] for name, t in batch.items()} for i in range(count)]
        parts = [part(row, count) for row in rows]
        while len(parts) > 1:  # sum as a binary tree, as the cluster does
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
        seen.append(float(parts[0][0] / count))
        for master, gradient in zip(masters.values(), parts[0][1:], strict=True):
            master.grad = gradient
        optimizer.step()
    return seen, weights_digest((name, p.detach().numpy()) for name, p in masters.items())


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_autocast_trains_a_plain_model_on_fp32_batches(
    half: str, level: Any, backend: cstorch.Backend
) -> None:
    """Losses and weights are those of a plain PyTorch loop under ``amp.autocast``."""
    amp.set_half_dtype(half)
    backends.csx.precision.optimization_level = level
    seen, digest = plain_loop()
    backend.session.register(PlainNet())
    found, weights = train(backend)
    assert weights == digest
    assert found == pytest.approx(seen, rel=1e-6)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_validation_accepts_what_autocast_runs(level: Any) -> None:
    """A float32 batch passes ``validate_only``; a float64 batch is refused by it."""
    with running_backend(validate_only=True) as backend:
        amp.enable_mixed_precision()
        backends.csx.precision.optimization_level = level
        backend.session.register(PlainNet())
        step = training_step(backend)
        losses(step, executor())
        doubles = loader(lambda: [{k: t.double() for k, t in b.items()} for b in batches()])
        with raises(ApplianceCompilationError, "product-of-two-types"):
            losses(step, executor(1, doubles))


def train(
    backend: cstorch.Backend, loss_scale: float = 1.0, lr: float = 0.1, **limits: float
) -> tuple[list[float], str]:
    """Run two steps; return the losses and the digest of the weights."""
    model = cstorch.compile(backend.model or Regression(), backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=lr)
    scaler = amp.GradScaler(loss_scale)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        amp.optimizer_step(loss, optimizer, scaler, **limits)
        return loss

    return losses(step, executor(2)), backend.weights_digest()


def test_loss_scale_of_a_power_of_two_changes_no_bit() -> None:
    """Gradients are divided by the scale in fp32 before clipping and update."""
    found = []
    for scale in (1.0, 1024.0):
        with running_backend() as backend:
            amp.enable_mixed_precision(False)
            found.append(train(backend, scale, max_gradient_norm=0.1))
    assert found[0] == found[1]


class Faint(Regression):
    """Its gradients are too small for float16."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) * 1e-9


@pytest.mark.parametrize("scale", [1.0, 2.0**20])
def test_loss_scale_keeps_small_gradients(scale: float, backend: cstorch.Backend) -> None:
    """In float16 kernels gradients below 6e-8 vanish unless the loss is scaled."""
    amp.set_half_dtype("float16")
    backend.session.register(Faint())
    train(backend, scale, lr=1e8)
    initial = {name: p.detach().numpy() for name, p in Faint().named_parameters()}
    masters = cluster_of(backend).do(ReadWeights(list(initial)))
    moved = any((masters[name] != initial[name]).any() for name in initial)
    assert moved == (scale > 1)


def test_scaling_twice_is_refused(backend: cstorch.Backend) -> None:
    """A step has one loss and one scale."""
    model = cstorch.compile(Regression(), backend)
    scaler = amp.GradScaler(2.0)
    step = cstorch.trace(lambda batch: scaler.scale(scaler.scale(model(**batch))))
    with raises(ApplianceCompilationError, "loss-scaled-twice"):
        losses(step, executor())


def test_optimizer_step_equals_the_single_calls(backend: cstorch.Backend) -> None:
    """Backward, clip by value, clip by norm, update, zero_grad give the same weights."""
    amp.enable_mixed_precision(False)
    _, digest = train(backend, max_gradient_value=0.05, max_gradient_norm=0.05)
    backend.shutdown()
    with running_backend() as again:
        model = cstorch.compile(Regression(), again)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses(step, executor(len(batches()) - 1))
        assert again.weights_digest() == digest
