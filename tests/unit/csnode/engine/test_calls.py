"""Kernels of an op: those that the array runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from csnode.engine.calls import KernelCall, calls_of
from csnode.engine.fabric import FabricArray, Run
from csnode.engine.kernels import KERNELS, PRODUCTS
from waferstream.compiler.ops import KIND_OF, op_name
from waferstream.compiler.work import work_of
from waferstream.core.program.segment import OpWork

aten: Any = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention_for_cpu


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, W, B = normal(6, 8), normal(8, 4), normal(4)
SCALE = normal(8)
Q, K, V, G = (normal(1, 3, 2, 4, seed=n).transpose(1, 2) for n in range(4))
OUT, SUMS = FLASH(Q, K, V, 0.0, True)
_, MEAN, FACTOR = aten.native_layer_norm(X, [8], None, None, 1e-5)
_, ROOT = aten._fused_rms_norm(X, [8], None, None)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mm": (aten.mm.default, (X, W)),
    "addmm": (aten.addmm.default, (B, X, W)),
    "bmm": (aten.bmm.default, (X.reshape(2, 3, 8), W.expand(2, 8, 4))),
    "sum_over_features": (aten.sum.dim_IntList, (X, [1])),
    "sum_over_tokens": (aten.sum.dim_IntList, (X, [0], True)),
    "sum_over_both": (aten.sum.default, (X,)),
    "sum_of_a_square_over_tokens": (aten.sum.dim_IntList, (normal(2, 4, 8), [0, 1], True)),
    "mean_of_a_square": (aten.mean.dim, (normal(2, 4, 8), [-1], True)),
    "mean": (aten.mean.dim, (X, [-1], True)),
    "softmax": (aten._softmax.default, (X, -1, False)),
    "softmax_backward": (aten._softmax_backward_data.default, (X, X, -1, torch.float32)),
    "log_softmax": (aten._log_softmax.default, (X, 1, False)),
    "log_softmax_backward": (aten._log_softmax_backward_data.default, (X, X, 1, torch.float32)),
    "layer_norm": (aten.native_layer_norm.default, (X, [8], SCALE, SCALE, 1e-5)),
    "layer_norm_backward": (
        aten.native_layer_norm_backward.default,
        (X, X, [8], MEAN, FACTOR, SCALE, SCALE, [True] * 3),
    ),
    "rms_norm": (aten._fused_rms_norm.default, (X, [8], SCALE, 1e-5)),
    "attention": (FLASH.default, (Q, K, V, 0.0, True)),
    "attention_backward": (
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        (G, Q, K, V, OUT, SUMS, 0.0, True),
    ),
}


def work(op: Callable[..., Any], arguments: tuple[Any, ...]) -> OpWork:
    """What the compiler says of an op."""
    graph = fx.Graph()

    def held(argument: Any) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        node = graph.placeholder("x")
        node.meta["val"] = argument
        return node

    node = graph.call_function(op, tuple(map(held, arguments)))
    node.meta.update(val=op(*arguments), kind=KIND_OF[op_name(node)])
    return work_of(node)


@pytest.mark.parametrize("case", [*CASES, "mm streams", "addmm streams"])
def test_calls_are_those_that_the_array_runs(case: str) -> None:
    name, _, streams = case.partition(" ")
    op, arguments = CASES[name]
    stated = work(op, arguments)._replace(streams=bool(streams))
    runs: list[Run] = []
    array = FabricArray(2, 3, on_run=runs.append)
    given = ((False, bool(streams)),) if stated.op in PRODUCTS else ()
    KERNELS[stated.op](array, *given, *arguments)
    assert [KernelCall(run.kernel, run.shape, run.dtype) for run in runs] == [
        call._replace(times=1) for call in calls_of(stated, "float32") for _ in range(call.times)
    ]


def test_op_of_torch_has_no_calls() -> None:
    assert calls_of(OpWork("gelu", "elementwise", 8, (2, 4)), "float32") == ()
    assert calls_of(OpWork("nll_loss_forward", "softmax", 8, (2, 4)), "float32") == ()
