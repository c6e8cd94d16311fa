"""Architectures of llama.cpp: the model of transformers that each is, and its names of weights.

Keys are those of the GGUF specification of ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{e}.gate_proj",
    "ffn_up_exps": "mlp.experts.{e}.up_proj",
    "ffn_down_exps": "mlp.experts.{e}.down_proj",
}
"""A part of a layer in GGUF, and in transformers; GGUF has a stack of the experts ``{e}``."""

OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

DIVISORS = "rope_freqs.weight"
"""A tensor of what the speeds of the rotation are divided by, as of LLaMA 3.1."""

Keys = Callable[[str], Any]
"""Returns the value of a key without the name of the architecture; an error if it is missing."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp.

    Attributes:
        model_type: That of transformers.
        pairs_neighbours: Whether rows that rotate together are neighbours in a head.
        has_experts: Whether feed-forward networks are experts.
    """

    model_type: str
    pairs_neighbours: bool = False
    has_experts: bool = False

    def config(self, keys: Keys) -> dict[str, Any]:
        """Return the sizes of config.json, as transformers would write them."""
        config = {
            "model_type": self.model_type,
            "hidden_size": keys("embedding_length"),
            "num_hidden_layers": keys("block_count"),
            "num_attention_heads": keys("attention.head_count"),
            "max_position_embeddings": keys("context_length"),
            "rms_norm_eps": keys("attention.layer_norm_rms_epsilon"),
        }
        if not self.has_experts:
            return {**config, "intermediate_size": keys("feed_forward_length")}
        return {
            **config,
            "num_experts": keys("expert_count"),
            "num_experts_per_tok": keys("expert_used_count"),
            "moe_intermediate_size": keys("expert_feed_forward_length"),
            "norm_topk_prob": True,
        }


ARCHITECTURES = {
    "llama": Architecture("llama", pairs_neighbours=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe", has_experts=True),
}


def named(name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a weight by its name in transformers, or those of its experts.

    A name that transformers lacks stays as it is.
    """
    part, _, kind = name.rpartition(".")
    if part in OUTER:
        yield f"{OUTER[part]}.{kind}", weight
        return
    _, layer, inner = (*part.split(".", 2), "", "")[:3]
    theirs = f"model.layers.{layer}.{NAMES[inner]}.{kind}" if inner in NAMES else name
    if "{e}" not in theirs:
        yield theirs, weight
        return
    for number, expert in enumerate(weight):
        yield theirs.format(e=number), expert


def halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of a head from neighbours that rotate together to halves."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
