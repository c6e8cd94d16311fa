"""Kernels on another device: here torch's ``meta``, whose tensors have no values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from csnode.devices.kernels import PROCESSOR, moved
from csnode.micro_batch import MicroBatch
from tests.support.errors import raises
from tests.support.roles.local_machine import BF16, compile_model
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.numerics.keyed_random import KEY_INPUT

META = torch.device("meta")
ATEN = torch.ops.aten
COPIES = (ATEN.copy_.default, ATEN._to_copy.default)


class OneDevice(TorchDispatchMode):
    """Refuses ops on tensors of two devices, and lets ``meta`` be copied: to zeros."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an op."""
        kwargs = kwargs or {}
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        devices = {tensor.device for tensor in tensors}
        assert len(devices) < 2 or func in COPIES, f"{func} on {devices}"
        if func is ATEN._to_copy.default and (devices, kwargs.get("device")) == ({META}, PROCESSOR):
            return torch.zeros(args[0].shape, dtype=args[0].dtype)
        return func(*args, **kwargs)


class Mixed(nn.Module):
    """Attention, dropout, a constant, an embedding, and tensors that a forward pass makes."""

    def __init__(self, *, draws: bool) -> None:
        super().__init__()
        self.draws = draws
        self.embedding = nn.Embedding(16, 8)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("table", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss of (B, S) numbers of tokens."""
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.embedding(x + places).unflatten(2, (2, 4)).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        mixed = mixed.transpose(1, 2).flatten(2) + self.get_buffer("table")
        mixed = mixed + torch.tensor([0.5] * 8)
        if self.draws:
            mixed = mixed + torch.rand_like(mixed) + torch.randn(8)
        mixed = nn.functional.dropout(self.linear(mixed), 0.5 if self.draws else 0.0)
        return mixed.float().square().mean()


@pytest.mark.parametrize("device", [META, torch.device("cuda", 0)], ids=str)
def test_every_value_of_a_moved_kernel_is_on_its_device(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants, factories, random numbers and attention, forward and backward.

    Tensors of a GPU are torch's fakes, which refuse ops on tensors of two devices, too; without
    CUDA they cannot be copied to, as random numbers of the processor are.
    """
    monkeypatch.setattr("csnode.devices.attention._has_flash", lambda _: True)
    compiled = compile_model(
        Mixed(draws=device == META), {"x": torch.zeros(2, 6, dtype=torch.int64)}, 1, precision=BF16
    )
    program = compiled.program
    with OneDevice() if device == META else FakeTensorMode(allow_non_fake_inputs=True):
        shapes = {spec.name: spec.shape for spec in program.parameters}
        weights = {
            name: torch.empty(shape, dtype=torch.bfloat16, device=device)
            for name, shape in shapes.items()
        }
        inputs = {
            spec.name: torch.empty(spec.shape, dtype=torch.int64, device=device)
            for spec in program.inputs
        }
        batch = MicroBatch(0, {KEY_INPUT: 1, **inputs}, tensors=frozenset({0}))
        for segment, source in zip(program.segments, compiled.kernels, strict=True):
            kernel = moved(source, segment.layer, device)
            batch.run(segment, kernel, [weights[name] for name in segment.weights])
            for name, gradient in batch.take_gradients().items():
                assert (gradient.device, gradient.shape) == (device, shapes[name])
        values = [value for value in batch.values.values() if isinstance(value, torch.Tensor)]
    assert {value.device for value in values} == {device}
    assert batch.results[0].device == PROCESSOR  # type: ignore[union-attr]


def test_factory_without_a_device_gets_one() -> None:
    """The compiler may leave it out where it is that of the process."""
    text = "def forward(self, x):\n    return (x + torch.ops.aten.ones.default([2]),)"
    kernel = moved(KernelSource(text, {}, {}), "layer", torch.device("meta"))
    (found,) = kernel(torch.empty(2, device="meta"))
    assert found.device.type == "meta"


def test_op_without_a_kernel_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At installation, before anything computes."""
    text = "def forward(self, x):\n    return (torch.ops.aten.relu.default(x),)"
    monkeypatch.setattr("csnode.devices.kernels._has_kernel", lambda op, _: op != "aten::relu")
    with raises(ApplianceCompilationError, "device-without-kernel"):
        moved(KernelSource(text, {}, {}), "layer", META)


def test_check_of_values_raises_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has it for the processor alone; on a GPU an assertion would end the process."""
    monkeypatch.setattr("csnode.devices.kernels._has_kernel", lambda *_: False)
    text = (
        "def forward(self, x, t):\n"
        "    return (torch.ops.aten._functional_assert_async.msg(x, 'too large', t),)"
    )
    kernel = moved(KernelSource(text, {}, {}), "layer", META)
    token = torch.ones(1)
    assert torch.equal(kernel(torch.tensor(True), token)[0], token)
    with pytest.raises(RuntimeError, match="too large"):
        kernel(torch.tensor(False), token)
