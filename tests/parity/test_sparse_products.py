"""Sparse products: every cluster has the weights of a plain PyTorch loop with the same products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from modelzoo.data.registry import build_source
from scripts import reference_loop
from tests.support.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.config.params import InitConfig

STEPS = 2
MOST = 0.5
SPARSE = {"sparse_products": MOST}
RIGL: dict[str, Any] = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}
PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"enabled": False},
    "bf16": {"fp16_type": "bfloat16"},
    "bf16 streams": {"fp16_type": "bfloat16", "precision_opt_level": 0},
}


def sparse(section: Any = 0.75, precision: str = "fp32") -> InitConfig:
    model = GPT | {"num_hidden_layers": 1}
    return init_config(model, sparsity=section, precision=PRECISIONS[precision])


class Linear(torch.autograd.Function):
    """A linear layer of which all three products are sparse."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        product = times(x.flatten(0, 1), w)
        return (product + bias.float()).to(x.dtype).view(*x.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, w = ctx.saved_tensors
        slope, rows = slopes[0].flatten(0, 1), x.flatten(0, 1)
        inner = times(slope, w.t().contiguous())
        everywhere = torch.ones_like(w, dtype=torch.float32).to_sparse_csr()
        gradient = torch.sparse.sampled_addmm(
            everywhere, slope.float().t(), rows.float(), beta=0
        ).to_dense()
        bias = slope.sum(0, keepdim=True).view(-1)
        return inner.to(x.dtype).view(x.shape), gradient.to(w.dtype), bias


def times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return ``x @ w.T`` in fp32, computed by MKL from the non-zeros of ``w``."""
    return (w.float().to_sparse_csr() @ x.float().t().contiguous()).t().contiguous()


class SparseLinear(TorchFunctionMode):
    """Computes linear layers whose weight has at most the density of the setting sparse."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is functional.linear:
            x, w, bias = args
            if int(w.count_nonzero()) <= MOST * w.numel():
                return Linear.apply(x, w, bias)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


@cache
def reference(precision: str) -> str:
    source, init = build_source(LOADER, "test"), sparse(precision=precision)
    batches = (source.batch(step) for step in range(STEPS))
    with SparseLinear():
        model = reference_loop.train(init, batches, source.batch_size)
    return reference_loop.weights_sha256(model)


def digest(init: InitConfig, num_csx: int = 1, engine: Any = SPARSE, **options: Any) -> str:
    steps = options.pop("steps", STEPS)
    found: str = train_on_cluster(init, Shape(num_csx, engine=engine), steps, **options)
    return found


@pytest.mark.parametrize(("precision", "num_csx"), [("fp32", 4), ("bf16", 2), ("bf16 streams", 1)])
def test_sparse_products_equal_those_of_the_plain_loop(precision: str, num_csx: int) -> None:
    assert digest(sparse(precision=precision), num_csx) == reference(precision)


def test_changing_masks_give_one_answer_also_after_a_restart(tmp_path: Path) -> None:
    path, init = tmp_path / "checkpoint.mdl", sparse(RIGL)
    whole = digest(init, 4, steps=3)
    digest(init, 2, steps=2, save=path)
    assert digest(init, 1, steps=1, restore=path) == whole
