"""A decoder of two layers, to serve."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from appliance.local import LocalRoles
from appliance.serving.pipeline import Pipeline, wafer_specs
from appliance.serving.proof import prove
from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.cache import KvCache
from csnode.inference.wafer import Wafer
from csnode.micro_batch import SramLedger
from waferstream.compiler.extend import compile_extend
from waferstream.serving.models.loading import HeldWeights

VOCABULARY, HIDDEN, HEADS, CONTEXT = 11, 16, 2, 150

Mix = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Decoder(nn.Module):
    """Two layers of attention over learned positions."""

    def __init__(self, mix: Mix = causal) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.places = nn.Embedding(CONTEXT, HIDDEN)
        self.projections = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCABULARY)
        self.mix = mix

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(positions)
        for projection in self.projections:
            heads = projection(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + self.mix(*heads).transpose(1, 2).flatten(2)
        scores: torch.Tensor = self.head(F.gelu(x))
        return scores


def make_pipeline(
    model: nn.Module | None = None,
    memory: SramLedger | None = None,
    token_bytes: int = 1,
    num_wafers: int = 1,
    engine: EngineSpec = TORCH,
    *,
    is_proven: bool = True,
) -> Pipeline:
    """Return a small decoder with much memory unless it is given."""
    module = model or Decoder()
    specs = wafer_specs(compile_extend(module, module), HeldWeights(module), num_wafers, engine)
    ledger = memory or SramLedger("a pipeline", 10**6)
    made = Pipeline(LocalRoles(specs), specs, ledger, token_bytes)
    if is_proven:
        prove(made, module, VOCABULARY, CONTEXT)
    return made


def caches_of(pipeline: Pipeline) -> list[KvCache]:
    """Return the caches of wafers in this process."""
    roles = pipeline._roles
    assert isinstance(roles, LocalRoles)
    wafers = [roles.role(name) for name in pipeline._names]
    return [wafer._stage.cache for wafer in wafers if isinstance(wafer, Wafer)]
