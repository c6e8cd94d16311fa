"""Kernels on another device than the processor, for which the compiler has written their text.

What changes: factories, which name their device or take that of the process; constants; and ops
that torch has for the processor alone. Random numbers are drawn on the processor either way
(waferstream.numerics.keyed_random), so that a key gives the same numbers on every device.

Attention is made of products, softmax and sums. Values and layouts are those of
``aten._scaled_dot_product_flash_attention_for_cpu``: scores and probabilities are fp32, and the
backward pass computes the probabilities again from the log of the sum of each row (Dao et al. 2022,
arXiv:2205.14135, appendix B.2 and B.4). Unlike that kernel it keeps the scores of a whole
micro-batch.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

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


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output, and the log of the sum of each row; there is no dropout.

    Args:
        query: (batch, heads, queries, size), as ``key`` and ``value`` with keys.
        key: See ``query``.
        value: See ``query``.
        dropout_p: 0.
        is_causal: Whether a query reads no later key.
        attn_mask: Numbers that are added to the scores.
        scale: Factor of the scores; by default that of the size.
    """
    assert dropout_p == 0.0, "dropout is an op of its own"
    scores = _scores(query, key, attn_mask, scale, is_causal=is_causal)
    log_sums = torch.logsumexp(scores, -1)
    log_sums = log_sums.masked_fill(log_sums == -torch.inf, 0.0)  # a row that reads no key is 0
    output = _probabilities(scores, log_sums) @ value.float()
    return _by_token(output.to(query.dtype)), _by_token(log_sums)


def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value."""
    assert dropout_p == 0.0, "dropout is an op of its own"
    scores = _scores(query, key, attn_mask, scale, is_causal=is_causal)
    probabilities = _probabilities(scores, logsumexp)
    grad = grad_out.float()
    grad_value = probabilities.mT @ grad
    # The gradient of a softmax: p * (g - sum of p * g), whose sum is that of grad_out * out.
    row_sums = (grad * out.float()).sum(-1, keepdim=True)
    grad_scores = probabilities * (grad @ value.float().mT - row_sums) * _factor(query, scale)
    grad_query, grad_key = grad_scores @ key.float(), grad_scores.mT @ query.float()
    pairs = ((grad_query, query), (grad_key, key), (grad_value, value))
    first, second, third = (_by_token(gradient.to(of.dtype)) for gradient, of in pairs)
    return first, second, third


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
    *,
    is_causal: bool,
) -> torch.Tensor:
    scores = query.float() @ key.float().mT * _factor(query, scale)
    if mask is not None:
        scores = scores + mask
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores


def _probabilities(scores: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row."""
    return (scores - log_sums.unsqueeze(-1)).exp()


def _by_token(values: torch.Tensor) -> torch.Tensor:
    """Return values with the heads of a token beside each other in memory."""
    by_token = values.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return by_token.transpose(1, 2)


_INSTEAD: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
}
