"""Functions of torch and small models of them: what must train."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.support.models.small_unet import TIMES, UNet
from tests.support.plain_torch.torch_cases import Case, function, integers


class GroupedExperts(nn.Module):
    """Mixture of experts by sorting tokens: topk, one-hot, argsort, grouped products, index_add."""

    def __init__(self, experts: int = 4, width: int = 8, hidden: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / 4)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Send each token of (B, T, width) to its two best experts."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2)
        order = chosen.flatten().argsort(stable=True)
        counts = F.one_hot(chosen.flatten(), len(self.up)).sum(0)
        ends = counts.cumsum(0).to(torch.int32)
        rows = tokens[order // 2].bfloat16()
        hidden = F.silu(F.grouped_mm(rows, self.up.bfloat16(), offs=ends))
        found = F.grouped_mm(hidden, self.down.bfloat16(), offs=ends).float()
        return torch.zeros_like(tokens).index_add(
            0, order // 2, found * weights.flatten()[order, None]
        )


class DenseExperts(nn.Module):
    """Mixture of experts that computes every expert for every token, weighted by a scatter."""

    def __init__(self, experts: int = 4, width: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of all experts' outputs, most with weight 0."""
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        dense = x.new_zeros(*x.shape[:-1], len(self.experts)).scatter(-1, chosen, weights)
        total = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            total = total + dense[..., index, None] * expert(x)
        return total


class TwoShifts(nn.Module):
    """Two parameters that are only ever added to each other, so that autograd copies a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.offset = (nn.Parameter(torch.rand(6)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` plus both."""
        return x + (self.shift + self.offset)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of values as complex numbers, as rotary embeddings do."""
    turns = torch.polar(torch.ones(3), torch.arange(3.0))
    return torch.view_as_real(torch.view_as_complex(x) * turns)


def with_slice_overwritten(x: torch.Tensor) -> torch.Tensor:
    """Write to part of a tensor, whose gradient autograd copies."""
    y = x * 2
    y[:, 1:] = x[:, :-1]
    return y


def reshaped_in_place(x: torch.Tensor) -> torch.Tensor:
    """Change the shape of a tensor that was read before, and read it again."""
    y = x * 2
    before = y.sum(0)
    y.unsqueeze_(1).transpose_(1, 2).squeeze_()
    return before + y.t_().sum()


MODELS = [
    Case("grouped experts", GroupedExperts, (3, 8)),
    Case("dense experts", DenseExperts, (3, 8)),
    Case("diffusion U-Net", UNet, (3, 8, 8), (integers(TIMES),)),
]

INDEXING = [
    function("topk", lambda x: x.topk(2)[0], (6,)),
    function("one_hot", lambda x: F.one_hot(x.argmax(-1), 6) * x, (6,)),
    function("sort", lambda x: x.sort(-1)[0], (6,)),
    function("argsort", lambda x: x * x.argsort(-1), (6,)),
    function("cumsum", lambda x: x.cumsum(-1), (6,)),
    function("histc", lambda x: x * torch.histc(x.detach(), 6, -2, 2), (6,)),
    function(
        "scatter_reduce",
        lambda x: x.new_zeros(len(x), 3).scatter_reduce(
            1, torch.arange(6).expand(len(x), 6) % 3, x, "amax"
        ),
        (6,),
    ),
    function(
        "index_copy",
        lambda x: torch.zeros_like(x).index_copy(1, torch.tensor([0, 2]), x[:, :2]),
        (6,),
    ),
    function("masked_scatter", lambda x: x.masked_scatter(x > 0, x * 2), (6,)),
    function("take", lambda x: x.take(torch.tensor([0, 2])), (6,)),
    function("bucketize", lambda x: x * torch.bucketize(x.detach(), torch.ones(5).cumsum(0)), (6,)),
    function(
        "searchsorted",
        lambda x: x * torch.searchsorted(torch.linspace(-1, 1, 5), x.detach()),
        (6,),
    ),
]

REDUCTIONS = [
    function("cumprod", lambda x: x.cumprod(-1), (6,)),
    function("logcumsumexp", lambda x: x.logcumsumexp(-1), (6,)),
    function("cummax", lambda x: x.cummax(-1)[0], (6,)),
    function("prod", lambda x: x.prod(-1), (6,)),
    function("aminmax", lambda x: torch.aminmax(x, dim=-1)[0], (6,)),
    function("kthvalue", lambda x: x.kthvalue(2)[0], (6,)),
    function("median", lambda x: x.median(-1)[0], (6,)),
    function("mode", lambda x: x.mode(-1)[0], (6,)),
    function("var_mean", lambda x: torch.var_mean(x, -1)[0], (6,)),
    function("logsumexp", lambda x: x.logsumexp(-1), (6,)),
    function("renorm", lambda x: x.renorm(2, 0, 1.0), (6,)),
    function("trace", lambda x: x[0].trace(), (4, 4)),
    function("cdist", lambda x: torch.cdist(x, x.flip(0)), (3, 4)),
    function("pdist", lambda x: F.pdist(x[0]), (3, 4)),
    function("addbmm", lambda x: torch.addbmm(x[0], x, x), (4, 4)),
    function("addr", lambda x: torch.addr(x[:2], x[0], x[1]), (2,)),
    function("einsum", lambda x: torch.einsum("bi,bj->bij", x, x), (6,)),
]

SHAPES = [
    function("shape in place", reshaped_in_place, (6,)),
    function("diag_embed", lambda x: x.diag_embed(), (6,)),
    function("diagonal", lambda x: x.diagonal(dim1=1, dim2=2), (4, 4)),
    function("unfold", lambda x: x.unfold(1, 3, 1), (6,)),
    function("repeat_interleave", lambda x: x.repeat_interleave(2, -1), (6,)),
    function("cross", lambda x: torch.cross(x, x.flip(0), dim=-1), (3,)),
    function("complex product", rotated, (3, 2)),
    function("write to a slice", with_slice_overwritten, (6,)),
    Case("sum of two parameters", TwoShifts, (6,)),
    function("index_fill", lambda x: x.index_fill(1, torch.tensor([1]), 0.5), (6,)),
    function(
        "grid_sample",
        lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
        (4, 5, 6),
    ),
    function("interpolate area", lambda x: F.interpolate(x, size=(3, 4), mode="area"), (4, 5, 6)),
    *[
        function(
            f"interpolate {mode} antialias",
            lambda x, mode=mode: F.interpolate(x, scale_factor=0.5, mode=mode, antialias=True),
            (4, 6, 8),
        )
        for mode in ("bilinear", "bicubic")
    ],
    function(
        "attention", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (2, 4, 8)
    ),
    function(
        "attention with dropout",
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
        (2, 4, 8),
    ),
]

RANDOM = [
    function("gumbel_softmax", F.gumbel_softmax, (6,)),
    function("rand", lambda x: x * torch.rand(6), (6,)),
    function("rand without generator", lambda x: x * torch.rand(6, generator=None), (6,)),
    function("randn", lambda x: x + torch.randn(6), (6,)),
    function("randint", lambda x: x * torch.randint(1, 3, (6,)), (6,)),
    function("randperm", lambda x: x[:, torch.randperm(6)], (6,)),
    function("multinomial", lambda x: x[:, torch.multinomial(torch.ones(6), 3)], (6,)),
    function("normal of numbers", lambda x: x + torch.normal(0.0, 1.0, (6,)), (6,)),
    function("normal of tensors", lambda x: x + torch.normal(x.detach(), 0.5), (6,)),
    function("normal_", lambda x: x + torch.empty(6).normal_(), (6,)),
    function("uniform_", lambda x: x + torch.empty(6).uniform_(-1, 1), (6,)),
]

FUNCTION_CASES = [*MODELS, *INDEXING, *REDUCTIONS, *SHAPES, *RANDOM]
