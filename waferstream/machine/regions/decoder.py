"""The shape of a decoder, as far as its time and memory on wafers follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.arguments import check_least

ELEMENT_BYTES = 2
"""Bytes of an activation or an entry of the KV cache: fp16."""


@dataclass(frozen=True)
class Decoder:
    """A decoder; extents in elements, those of heads for all heads together."""

    dim: int
    ffn: int
    """Width of the feed-forward block, or of one expert."""
    layers: int
    kv_dim: int
    """Width of the keys, or values."""
    query_dim: int = 0
    """Width of the queries; 0 for that of the model."""
    experts: int = 1
    """Experts of which a token is routed to ``experts_per_token``; 1 is a dense block."""
    experts_per_token: int = 1
    shared_experts: int = 0
    """Experts that every token passes beside those it is routed to."""
    is_gated: bool = True
    """Whether the feed-forward block has a gate beside its first product."""
    vocabulary: int = 0
    """Entries of embedding and head; 0 where the host holds both, as in WaferLLM."""
    weight_bits: int = 16

    def __post_init__(self) -> None:
        check_least(
            "a decoder",
            dim=self.dim,
            ffn=self.ffn,
            layers=self.layers,
            kv_dim=self.kv_dim,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            weight_bits=self.weight_bits,
        )
        check_least("a decoder", 0, query_dim=self.query_dim, vocabulary=self.vocabulary)

    @property
    def queries(self) -> int:
        """Width of the queries."""
        return self.query_dim or self.dim

    @property
    def products(self) -> int:
        """Products of a feed-forward block: up, down, and a gate."""
        return 3 if self.is_gated else 2

    @property
    def active_ffn(self) -> int:
        """Feed-forward width that a token passes: of its experts together."""
        return self.ffn * (self.experts_per_token + self.shared_experts)

    @property
    def attention_weights(self) -> int:
        """Weights of Q and O, K and V of a layer."""
        return 2 * self.dim * (self.queries + self.kv_dim)

    @property
    def expert_weights(self) -> int:
        """Weights of one expert."""
        return self.products * self.dim * self.ffn

    @property
    def layer_weights(self) -> int:
        """Weights of one layer, with all experts and the router that selects among them."""
        router = self.dim * self.experts if self.experts > 1 else 0
        held = self.experts + self.shared_experts
        return self.attention_weights + held * self.expert_weights + router

    @property
    def active_weights(self) -> int:
        """Weights of the layers that a token passes."""
        active = self.experts_per_token + self.shared_experts
        return self.layers * (self.attention_weights + active * self.expert_weights)

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer's weights."""
        return self.layer_weights * self.weight_bits // 8

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of all layers."""
        return self.layers * self.layer_bytes

    @property
    def head_bytes(self) -> int:
        """Bytes of the head; the embedding, of which a token reads one row, takes as many."""
        return self.vocabulary * self.dim * self.weight_bits // 8

    def read_bytes(self, tokens: int) -> float:
        """Return the bytes of the layers' weights that a batch of ``tokens`` meets, as expected.

        Each token is routed at random, on its own.
        """
        missed = (1 - self.experts_per_token / self.experts) ** tokens
        idle = self.layers * missed * self.experts * self.expert_weights
        return self.weight_bytes - idle * self.weight_bits / 8

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of keys and values of ``tokens`` in all layers."""
        return 2 * ELEMENT_BYTES * self.layers * self.kv_dim * tokens
