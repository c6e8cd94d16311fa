"""Mixture of experts: a router sends each token to a few of many feed-forward networks.

Shazeer et al. 2017, "Outrageously large neural networks", and Jiang et al. 2024, "Mixtral of
experts", section 2.1. Keys: ``moe`` of a model section (Model Zoo 2.10,
``layers/FeedForwardNetwork.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.blocks.layers import NONLINEARITIES, FeedForward, Routing, Routings, gated
from modelzoo.models.blocks.transformer_config import ExpertsConfig, Spread, TransformerConfig
from waferstream.core.errors import ConfigError
from waferstream.numerics.forms import has_forms


@has_forms
def expert_product(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return rows (N, inputs), sorted by expert, times the weight (E, outputs, inputs) of each."""
    product: torch.Tensor = torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)
    return product


class ExpertLinear(nn.Module):
    """One projection for each expert."""

    def __init__(self, num_experts: int, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(num_experts, outputs)) if bias else None

    def forward(self, x: torch.Tensor, ends: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """Return (N, outputs) of rows (N, inputs) sorted by expert.

        Args:
            x: Rows.
            ends: End of each expert's rows, int32 (E,).
            experts: Expert of each row, int64 (N,).
        """
        projected = expert_product(x, self.weight, ends)
        return projected if self.bias is None else projected + self.bias[experts]


class Experts(nn.Module):
    """Feed-forward networks of which each token passes ``top_k``, and shared ones that all pass."""

    def __init__(self, config: TransformerConfig, moe: ExpertsConfig) -> None:
        super().__init__()
        self._moe = moe
        hidden, filters, bias = config.hidden_size, config.filter_size, config.use_ffn_bias
        self.router = (
            nn.Linear(hidden, moe.num_experts, bias=moe.router_use_bias) if moe.is_learned else None
        )
        self.up = ExpertLinear(moe.num_experts, hidden, filters, bias)
        self.gate = (
            ExpertLinear(moe.num_experts, hidden, filters, bias) if config.is_gated else None
        )
        self.down = ExpertLinear(moe.num_experts, filters, hidden, bias)
        copies = moe.num_shared_experts
        self.shared = FeedForward(config, copies) if copies else None
        self._nonlinearity = config.nonlinearity

    def forward(self, x: torch.Tensor, routings: Routings | None = None) -> torch.Tensor:
        """Return (B, T, C), and append the routing of this layer to ``routings``."""
        if self.router is None:
            chosen = _of_rows(self._fixed_choice(x, routings), x)
            weights = torch.full_like(chosen, self._fixed_weight, dtype=x.dtype)
        else:
            weights, chosen, probabilities = self._route(x, self.router)
            if routings is not None:
                counted = F.one_hot(chosen, self._moe.num_experts).sum(-2).float()
                routings.taken.append((probabilities, counted))
        mixed = self._mix(x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1))
        mixed = mixed.view_as(x)
        return mixed if self.shared is None else mixed + self.shared(x)

    def _fixed_choice(self, x: torch.Tensor, routings: Routings | None) -> torch.Tensor:
        """Return the experts int64 (B, T, k) of tokens by their number, or by their place.

        Raises:
            ConfigError: Experts are chosen by the numbers of tokens, which are not known.
        """
        moe, token_ids = self._moe, None if routings is None else routings.token_ids
        if moe.routing_algorithm == "uniform":
            places = torch.arange(x.shape[1], device=x.device)[:, None]
            choice = (places + torch.arange(moe.top_k, device=x.device)) % moe.num_experts
            return choice.expand(x.shape[0], -1, -1)
        if token_ids is None:
            raise ConfigError(
                "experts chosen by hash need the numbers of tokens",
                code="hash-without-tokens",
                value="a model that reads vectors",
                remedy="choose moe.routing_algorithm learned or uniform",
            )
        return token_ids[..., None] % moe.num_experts

    @property
    def _fixed_weight(self) -> float:
        """The weight of each expert that no router has chosen."""
        moe = self._moe
        share = 1 / moe.top_k
        if not moe.expert_weighting_normalization:
            return share
        return share / (1 + moe.null_expert_bias)

    def _route(
        self, x: torch.Tensor, router: nn.Linear
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return weights and experts (B, T, k), and the probabilities (B, T, E)."""
        moe, scores = self._moe, router(x)
        if moe.router_fp32:
            scores = scores.float()
        probabilities = _spread(scores, moe.router_selection_nonlinearity, moe.sinkhorn_n_iters)
        weights, chosen = probabilities.topk(moe.top_k, dim=-1)
        if moe.expert_weighting_nonlinearity != moe.router_selection_nonlinearity:
            kind = moe.expert_weighting_nonlinearity
            weighting = _spread(scores, kind, moe.sinkhorn_n_iters)
            weights = weighting.gather(-1, chosen)
        if moe.expert_weighting_normalization:
            weights = weights / (weights.sum(-1, keepdim=True) + moe.null_expert_bias)
        return weights.to(x.dtype), chosen, probabilities.float()

    def _mix(
        self, tokens: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted outputs (N, C) of the chosen experts (N, k)."""
        experts, order = chosen.flatten().sort(stable=True)
        ends = F.one_hot(experts, self._moe.num_experts).sum(0).cumsum(0).to(torch.int32)
        rows = tokens[order // chosen.shape[-1]]
        weighs_first = self._moe.probability_before_ffn
        if weighs_first:
            rows = rows * weights.flatten()[order][:, None]
        inner = self.up(rows, ends, experts)
        if self.gate is None:
            inner = NONLINEARITIES[self._nonlinearity](inner)
        else:
            inner = gated(self._nonlinearity, self.gate(rows, ends, experts), inner)
        outputs = self.down(inner, ends, experts)
        back = outputs[order.argsort()].unflatten(0, (-1, chosen.shape[-1]))
        mixed: torch.Tensor = (back if weighs_first else back * weights[..., None]).sum(-2)
        return mixed


def _of_rows(chosen: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return experts (B, T, k) as values of the rows of a micro-batch (B, T, C).

    What follows from inputs alone is taken from the whole batch, but tokens are sorted by expert in
    each micro-batch.
    """
    return torch.where(x[..., :1].isnan(), chosen, chosen)


def feed_forward(config: TransformerConfig) -> nn.Module:
    """Return the feed-forward part of a layer: one network, or experts."""
    moe = config.experts
    return FeedForward(config) if moe is None else Experts(config, moe)


def load_balancing_loss(routings: Sequence[Routing], attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the loss that is least where all experts get equally many tokens.

    Of every sample: E times the sum over experts of the share of tokens that they get and their
    mean probability, both over the tokens that count and over all layers (Fedus et al. 2022,
    Switch Transformers, eqs. 4 to 6, there per batch); the mean over samples.
    """
    counted = attention_mask[..., None].float()
    shares = counted / counted.sum(1, keepdim=True).clamp(min=1)
    probability, tokens = (
        torch.stack([(routing[part] * shares).sum(1) for routing in routings]).mean(0)
        for part in (0, 1)
    )
    loss: torch.Tensor = probability.shape[-1] * (probability * tokens).sum(-1).mean()
    return loss


def _spread(scores: torch.Tensor, kind: Spread, steps: int) -> torch.Tensor:
    """Return the share of each expert (B, T, E): a softmax, a sigmoid of each, or balanced ones.

    Balanced shares have no gradient: each step divides them by their sums over the experts, then
    over the tokens of a sequence (Clark et al. 2022, "Unified scaling laws for routed language
    models", appendix B).
    """
    if kind != "sinkhorn":
        return scores.softmax(-1) if kind == "softmax" else scores.sigmoid()
    scores = scores.detach()
    for _ in range(steps):
        scores = scores - scores.logsumexp(2, keepdim=True)
        scores = scores - scores.logsumexp(1, keepdim=True)
    return scores.exp()
