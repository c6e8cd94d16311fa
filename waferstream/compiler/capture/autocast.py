"""Autocast: the float types in which the functions of a model compute.

At precision level 0 weights enter a kernel as fp32, at levels 1 and 2 in the half type. Batches are
fp32 as a rule, so the operands of a function can have different float types:

| functions                        | float operands                                              |
|----------------------------------|-------------------------------------------------------------|
| products: linear, matmul,        | the compute type, as under torch.autocast: fp32 activations |
| convolutions, attention, einsum, | are rounded where a product first reads them                |
| recurrent layers and cells       |                                                             |
| losses                           | fp32                                                        |
| softmax, log_softmax             | fp32 at levels 0 and 1, unchanged at level 2                |
| norms with weights               | weights are fp32 beside an fp32 input or fp32 statistics;   |
|                                  | the sums are fp32, and the result has the input's type      |
| all others                       | unchanged: torch promotes to the wider type                 |

Inside ``cstorch.pol`` the level of the function counts for products and softmax: at level 0 a
product takes half operands in fp32, at levels 1 and 2 fp32 operands in the half type, and its
result is cast back to the type that it would have had. Weights stream and enter kernels as the
program's level says.

A product whose operands are all fp32 stays fp32, in contrast to torch.autocast: a model that casts
explicitly (``router(x.float(), w.float())``) keeps what it asks for. float64 is never cast.

The mode acts on the Python calls of a step, above autograd, so that gradients pass through the same
casts. It serves a plain PyTorch loop as well, which then computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from waferstream.numerics.precision import StreamPrecision

_NAMES = {
    "product": "linear bilinear matmul __matmul__ __rmatmul__ mm bmm mv dot addmm addbmm addmv "
    "baddbmm einsum tensordot chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d scaled_dot_product_attention multi_head_attention_forward "
    "prelu lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    "loss": "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
    "binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss gaussian_nll_loss "
    "hinge_embedding_loss cosine_embedding_loss margin_ranking_loss soft_margin_loss "
    "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss triplet_margin_loss",
    "softmax": "softmax log_softmax softmin logsumexp",
    "norm": "layer_norm rms_norm group_norm batch_norm instance_norm",
}
FAMILY_OF = {name: family for family, names in _NAMES.items() for name in names.split()}
"""Family of each function that casts: ``product``, ``loss``, ``softmax`` or ``norm``."""

Rule = Callable[[Any, Any], Any]
"""Casts the (args, kwargs) of a call."""

active_level: ContextVar[int | None] = ContextVar("active_level", default=None)
"""The precision level of the function that runs now, None for that of the program."""

_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))


_check_input = nn.RNNBase.check_input


@contextmanager
def autocast(precision: StreamPrecision) -> Iterator[None]:
    """Let functions of a step's forward pass cast; nothing changes where weights are fp32."""
    if precision.stream == "float32" or not precision.casts:
        yield
        return
    with _Autocast(precision), patch.object(nn.RNNBase, "check_input", _check_cast_input):
        yield


def _check_cast_input(
    module: nn.RNNBase, input: torch.Tensor, batch_sizes: torch.Tensor | None
) -> None:
    """Check what a recurrent layer is given, but for its type, which its function casts."""
    if input.dtype in _FLOATS:
        input = input.to(module.all_weights[0][0].dtype)
    _check_input(module, input, batch_sizes)


class _Autocast(TorchFunctionMode):
    """Cast the operands of the functions in the table of this module."""

    def __init__(self, precision: StreamPrecision) -> None:
        super().__init__()
        self._compute = precision.compute_dtype
        self._half = precision.stream_dtype
        self._rules: Mapping[str, Rule] = {
            "product": self._as_product,
            "loss": _as_fp32,
            "softmax": _unchanged if precision.softmax_in_half else _as_fp32,
            "norm": _with_fp32_weights,
        }

    def _at_level(self, level: int, family: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function at the precision level of ``cstorch.pol``."""
        if family == "softmax":
            args, kwargs = (_unchanged if level == 2 else _as_fp32)(args, kwargs)
        if family != "product":
            return func(*args, **kwargs)
        args, kwargs = self._as_product(args, kwargs)
        usual = {tensor.dtype for tensor in _floats((args, kwargs))}
        inner = torch.float32 if level == 0 else self._half
        args, kwargs = _cast((args, kwargs), inner)
        result = func(*args, **kwargs)
        return _cast(result, *usual) if len(usual) == 1 else result

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # The names of torch.special and torch.linalg have a prefix.
        name = func.__name__.removeprefix("special_").removeprefix("linalg_")
        kwargs = kwargs or {}
        family, level = FAMILY_OF.get(name), active_level.get()
        if level is not None and family in {"product", "softmax"}:
            return self._at_level(level, family, func, args, kwargs)
        if family is not None:
            args, kwargs = self._rules[family](args, kwargs)
        return func(*args, **kwargs)

    def _as_product(self, args: Any, kwargs: Any) -> Any:
        """Cast to the compute type where operands differ."""
        if len({tensor.dtype for tensor in _floats((args, kwargs))}) < 2:
            return args, kwargs
        return _cast((args, kwargs), self._compute)


def _unchanged(args: Any, kwargs: Any) -> Any:
    return args, kwargs


def _as_fp32(args: Any, kwargs: Any) -> Any:
    """Cast to fp32, unless the call states a type of its own."""
    if kwargs.get("dtype") is not None:
        return args, kwargs
    return _cast((args, kwargs), torch.float32)


def _with_fp32_weights(args: Any, kwargs: Any) -> Any:
    """Cast the weights of a norm to fp32 if its input or its running statistics are fp32."""
    tensors = _floats((args, kwargs))
    if torch.float32 not in {tensor.dtype for tensor in tensors}:
        return args, kwargs
    first = tensors[0]

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        wide: torch.Tensor = tensor if tensor is first else _cast(tensor, torch.float32)
        return wide

    return tree_map_only(torch.Tensor, cast, (args, kwargs))


def _floats(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a float type that autocast may change, in the order of arguments."""
    tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return [tensor for tensor in tensors if tensor.dtype in _FLOATS]


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.dtype in _FLOATS else tensor

    return tree_map_only(torch.Tensor, cast, tree)
