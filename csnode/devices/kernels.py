"""Kernels on another device than the processor, for which the compiler has written their text.

What changes: factories, which name their device or take that of the process; constants; and ops
that torch has for the processor alone (csnode.devices.attention). A key gives the same random
numbers on every device (waferstream.numerics.keyed_random).

"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from csnode.devices.attention import attention, attention_backward
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource

PROCESSOR = torch.device("cpu")

_PREFIX = "torch.ops.aten."
_DEVICE = "device"  # the global of a kernel's text that makes one
_KEYS = {"cuda": "CUDA", "meta": "Meta"}
"""Torch's name of the kernels of a device, by type."""

_COMPOSITE = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def moved(kernel: KernelSource, layer: str, device: torch.device) -> Callable[..., tuple[Any, ...]]:
    """Return a kernel as a callable on tensors of a device.

    Args:
        kernel: The kernel.
        layer: Its layer, for errors.
        device: The device.

    Raises:
        ApplianceCompilationError: torch has no kernel of an op for the device.
    """
    mover = _Mover(layer, device)
    tree = ast.fix_missing_locations(mover.visit(ast.parse(kernel.text)))
    constants = {name: tensor.to(device) for name, tensor in kernel.constants.items()}
    there = replace(kernel, text=ast.unparse(tree), constants=constants)
    return there.build({_DEVICE: lambda *_, **__: device, **mover.instead})


class _Mover(ast.NodeTransformer):
    """Lets factories make tensors on a device, and replaces ops that only the processor has."""

    def __init__(self, layer: str, device: torch.device) -> None:
        self.instead: dict[str, Callable[..., Any]] = {}
        self._layer, self._device = layer, device

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Move one call; devices are arguments of calls, by name."""
        self.generic_visit(node)
        name = ast.unparse(node.func)
        for keyword in node.keywords:
            if keyword.arg == _DEVICE:
                keyword.value = _device_call()
        if not name.startswith(_PREFIX):
            return node
        op, _, overload = name.removeprefix(_PREFIX).partition(".")
        if op in _INSTEAD:
            name = f"plain{op}"  # values of the text may have the name of the op
            self.instead[name] = _INSTEAD[op]
            return ast.Call(ast.Name(name, ast.Load()), node.args, node.keywords)
        target = getattr(getattr(torch.ops.aten, op), overload or "default")
        self._check(target)
        if _makes_tensors(target) and all(keyword.arg != _DEVICE for keyword in node.keywords):
            node.keywords.append(ast.keyword(_DEVICE, _device_call()))
        return node

    def _check(self, target: torch._ops.OpOverload) -> None:
        key = _KEYS[self._device.type]
        keys = (key, *_COMPOSITE)
        if not _has_kernel("aten::mm", key):  # a torch without this device: nothing will run
            return
        if not any(_has_kernel(target.name(), each) for each in keys):
            raise ApplianceCompilationError(
                "an op has no kernel on the device of the CS nodes",
                code="device-without-kernel",
                where=f"{self._layer}, runtime.device",
                value=f"{target} on {self._device.type}",
                rule="torch has a kernel for every op",
                remedy="write the layer with other ops, or set runtime.device: cpu",
            )


def _device_call() -> ast.Call:
    return ast.Call(ast.Name(_DEVICE, ast.Load()), [], [])


def _makes_tensors(target: torch._ops.OpOverload) -> bool:
    """Return whether an op makes a tensor of no other one, on a device that may be named."""
    arguments = target._schema.arguments
    has_device = any(argument.name == _DEVICE for argument in arguments)
    return has_device and not any("Tensor" in str(argument.type) for argument in arguments)


def _has_kernel(op: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))


def checked(condition: torch.Tensor, message: str, token: torch.Tensor) -> torch.Tensor:
    """Raise as the processor's kernel does, RuntimeError; this waits for the device."""
    if not bool(condition):
        raise RuntimeError(message)
    return token.clone()


_INSTEAD: dict[str, Callable[..., Any]] = {
    "_functional_assert_async": checked,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
}
