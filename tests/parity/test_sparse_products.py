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

from scripts import reference_loop
from scripts.reference_update import SparseWeights
from tests.support.runs.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.config.params import InitConfig
from waferstream.workload.data import build_source

STEPS = 2
MOST = 0.5
SPARSE = {"sparse_products": MOST}
SECTIONS: dict[str, Any] = {
    "static": 0.75,
    "set": {"algorithm": "set", "sparsity": 0.75, "update": {"steps": [0, 1]}},
    "rigl": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}},
}
PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"enabled": False},
    "bf16": {"fp16_type": "bfloat16"},
    "bf16 streams": {"fp16_type": "bfloat16", "precision_opt_level": 0},
}


def sparse(section: Any, precision: str = "fp32") -> InitConfig:
    model = GPT | {"num_hidden_layers": 1}
    return init_config(model, sparsity=section, precision=PRECISIONS[precision])


class Linear(torch.autograd.Function):
    """A linear layer of which all three products are sparse."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(x, w, mask)
        product = times(x.flatten(0, 1), w, mask)
        return (product + bias.float()).to(x.dtype).view(*x.shape[:2], -1)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w, mask = ctx.saved_tensors
        slope, rows = slopes[0].flatten(0, 1), x.flatten(0, 1)
        inner = times(slope, w.t(), mask.t())
        everywhere = torch.ones_like(w, dtype=torch.float32).to_sparse_csr()
        gradient = torch.sparse.sampled_addmm(
            everywhere, slope.float().t(), rows.float(), beta=0
        ).to_dense()
        bias = slope.sum(0, keepdim=True).view(-1)
        return inner.to(x.dtype).view(x.shape), gradient.to(w.dtype), bias, None


def times(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return ``x @ w.T`` in fp32, computed by MKL from the elements of ``w`` in its mask."""
    places = mask.float().to_sparse_csr()
    rows = torch.sparse_csr_tensor(
        places.crow_indices(), places.col_indices(), w[mask].float(), w.shape
    )
    return (rows @ x.float().t().contiguous()).t().contiguous()


class Masks(SparseWeights):
    """The masks of the plain loop; those of weights that are copies of masters are their zeros."""

    latest: Masks

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Masks.latest = self

    def of(self, w: torch.Tensor) -> torch.Tensor:
        """Return the mask of a streamed weight: of an fp32 one also where a kept element is zero."""
        masks = (mask for m, mask in self._masks.items() if m.data_ptr() == w.data_ptr())
        return next(masks, w != 0)


class SparseLinear(TorchFunctionMode):
    """Computes linear layers whose weight has at most the density of the setting sparse."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is functional.linear:
            x, w, bias = args
            mask = Masks.latest.of(w)
            if int(mask.sum()) <= MOST * w.numel():
                return Linear.apply(x, w, bias, mask)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


@cache
def reference(algorithm: str, precision: str) -> str:
    source, init = build_source(LOADER, "test"), sparse(SECTIONS[algorithm], precision)
    batches = (source.batch(step) for step in range(STEPS))
    with SparseLinear(), pytest.MonkeyPatch.context() as noted:
        noted.setattr(reference_loop, "SparseWeights", Masks)
        model = reference_loop.train(init, batches, source.batch_size)
    return reference_loop.weights_sha256(model)


def digest(init: InitConfig, num_csx: int = 1, engine: Any = SPARSE, **options: Any) -> str:
    steps = options.pop("steps", STEPS)
    found: str = train_on_cluster(init, Shape(num_csx, engine=engine), steps, **options)
    return found


@pytest.mark.parametrize(
    ("algorithm", "precision", "num_csx"),
    [("set", "fp32", 4), ("static", "bf16", 2), ("static", "bf16 streams", 1)],
)
def test_sparse_products_equal_those_of_the_plain_loop(
    algorithm: str, precision: str, num_csx: int
) -> None:
    """With a mask that changes after the first step, too."""
    found = digest(sparse(SECTIONS[algorithm], precision), num_csx)
    assert found == reference(algorithm, precision)


def test_changing_masks_give_one_answer_also_after_a_restart(tmp_path: Path) -> None:
    path, init = tmp_path / "checkpoint.mdl", sparse(SECTIONS["rigl"])
    whole = digest(init, 4, steps=3)
    digest(init, 2, steps=2, save=path)
    assert digest(init, 1, steps=1, restore=path) == whole
