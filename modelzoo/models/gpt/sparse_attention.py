"""Keys of decoders whose queries read a part of the keys before them (Model Zoo 2.10, ``gpt2``)."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, model_validator
from pydantic import field_validator as check

from modelzoo.models.blocks.key_patterns import Chunk, Columns, FixedSparse, KeyPattern
from modelzoo.models.blocks.memory_tokens import MemoryPlaces
from modelzoo.models.blocks.transformer_config import NoneIsZero
from modelzoo.models.mup import MupConfig
from waferstream.core.config import Config


class FixedSparseConfig(Config):
    """Section ``fixed_sparse_attention``, of every other layer, from the second on."""

    local_attn_ctx: PositiveInt = 16
    """Tokens of a block, of which a query reads its own."""
    num_verts: PositiveInt = 64
    """Groups of summaries at the end of each block."""
    vert_size: PositiveInt = 16
    """Tokens of a group."""
    different_layout_per_head: bool = False
    """Whether heads read one group each, in turn; all read the last one otherwise."""

    @model_validator(mode="after")
    def _groups_fit_a_block(self) -> Self:
        if self.local_attn_ctx % self.vert_size:
            raise ValueError("vert_size must divide local_attn_ctx")
        if self.num_verts * self.vert_size > self.local_attn_ctx:
            raise ValueError("num_verts times vert_size must be at most local_attn_ctx")
        return self

    def pattern(self, num_heads: int) -> FixedSparse:
        """Return the keys that a query of each head reads."""
        groups = tuple(head % self.num_verts for head in range(num_heads))
        read = groups if self.different_layout_per_head else groups[:1]
        return FixedSparse(self.local_attn_ctx, self.vert_size, read)


class MemoryTokensConfig(Config):
    """Section ``memory_tokens``: tokens between chunks of a sequence."""

    attn_memory_chunk_size: PositiveInt | None = None
    """Tokens of a chunk, behind which memory tokens lie; no memory by default."""
    num_memory_tokens_per_chunk: PositiveInt | None = None
    add_qkv_memory_weights: bool = False
    """Whether attention projects memory tokens by weights of their own."""
    add_extra_embedding: bool = False
    """Whether memory tokens have a trained vector in place of the embedding of their number."""
    add_chunked_attn_mask: bool = False
    """Whether a query reads the chunk that it is in, and the memory of those before it, alone."""
    memory_token_id: NonNegativeInt = 0

    @property
    def places(self) -> MemoryPlaces | None:
        """Where memory tokens lie; None for none."""
        if self.attn_memory_chunk_size is None or self.num_memory_tokens_per_chunk is None:
            return None
        return MemoryPlaces(self.attn_memory_chunk_size, self.num_memory_tokens_per_chunk)


class SparseAttentionConfig(MupConfig):
    """A decoder whose queries may read a part of the keys before them."""

    attention_sliding_window_length: PositiveInt | None = None
    """Keys that a query reads, itself included; all by default."""
    sliding_window_every_other_decoder_layer: bool = False
    sliding_window_every_other_decoder_layer_pattern: Literal[
        "sliding_window_first", "full_attention_first"
    ] = "full_attention_first"
    full_attention_layers: tuple[NonNegativeInt, ...] = ()
    """Layers without the window, from 0."""
    window_rope_theta: PositiveFloat | None = None
    """Base of the rotation of layers with a window; that of all layers by default."""
    attention_sink_tokens: NoneIsZero = 0
    """First tokens, which every query reads in spite of the window."""
    attention_chunk_size: PositiveInt | None = None
    """Tokens of a chunk, of which a query reads its own alone; all by default."""
    attention_vertical_column_spacing: PositiveInt | None = None
    """Distance of columns, which every query reads in spite of window and chunks."""
    attention_vertical_column_width: PositiveInt | None = None
    """Tokens of a column, at the end of each distance."""
    fixed_sparse_attention: FixedSparseConfig | None = None
    memory_tokens: MemoryTokensConfig = MemoryTokensConfig()

    @property
    def layers_of_unit(self) -> int:
        alternates = self.sliding_window_every_other_decoder_layer
        return 2 if alternates or self.fixed_sparse_attention is not None else 1

    @property
    def projected_memory(self) -> MemoryPlaces | None:
        memory = self.memory_tokens
        return memory.places if memory.add_qkv_memory_weights else None

    @property
    def longest_sequence(self) -> int:
        """Most tokens of a sequence, those of the memory included."""
        places = self.memory_tokens.places
        longest = self.max_position_embeddings
        return longest if places is None else places.length(longest)

    def window_of(self, layer: int) -> int | None:
        """Return the keys that a query of a layer reads; None for all, or those of a pattern."""
        if layer in self.full_attention_layers or self._is_fixed(layer):
            return None
        if self.sliding_window_every_other_decoder_layer:
            first = self.sliding_window_every_other_decoder_layer_pattern == "sliding_window_first"
            if layer % 2 == (1 if first else 0):
                return None
        return self.attention_sliding_window_length

    def patterns_of(self, layer: int) -> tuple[KeyPattern, ...]:
        """Return the keys that a query of a layer reads besides those of a window."""
        if self.fixed_sparse_attention is not None and self._is_fixed(layer):
            return (self.fixed_sparse_attention.pattern(self.num_heads),)
        memory = self.memory_tokens
        if memory.add_chunked_attn_mask and (places := memory.places) is not None:
            return (Chunk(places.spacing), Columns(places.spacing, places.count))
        spacing, width = (
            self.attention_vertical_column_spacing,
            self.attention_vertical_column_width,
        )
        window = self.window_of(layer)
        if self.attention_chunk_size is None and window is None:
            return ()
        chunks = () if self.attention_chunk_size is None else (Chunk(self.attention_chunk_size),)
        return chunks if spacing is None or width is None else (*chunks, Columns(spacing, width))

    def _is_fixed(self, layer: int) -> bool:
        """Return whether a layer has fixed sparse attention."""
        return self.fixed_sparse_attention is not None and layer % 2 == 1

    @check(
        "sliding_window_every_other_decoder_layer",
        "full_attention_layers",
        "window_rope_theta",
        "attention_sink_tokens",
    )
    @classmethod
    def _needs_a_window(cls, value: Any, info: ValidationInfo) -> Any:
        window = info.data.get("attention_sliding_window_length", 1)
        if value and window is None:
            raise ValueError("requires attention_sliding_window_length")
        return value

    @check("attention_chunk_size")
    @classmethod
    def _chunks_have_no_window(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is not None and info.data.get("attention_sliding_window_length") is not None:
            raise ValueError("excludes attention_sliding_window_length")
        return size

    @check("attention_vertical_column_width")
    @classmethod
    def _columns_have_a_distance(cls, width: int | None, info: ValidationInfo) -> int | None:
        spacing = info.data.get("attention_vertical_column_spacing")
        if (spacing is None) != (width is None):
            raise ValueError("columns need attention_vertical_column_spacing and ..._width")
        if width is not None and spacing is not None and width > spacing:
            raise ValueError("must be at most attention_vertical_column_spacing")
        keys = ("attention_sliding_window_length", "attention_chunk_size")
        if width is not None and all(info.data.get(key) is None for key in keys):
            raise ValueError(f"columns need {' or '.join(keys)}")
        return width

    @check("fixed_sparse_attention")
    @classmethod
    def _layers_alternate_once(
        cls, fixed: FixedSparseConfig | None, info: ValidationInfo
    ) -> FixedSparseConfig | None:
        if fixed is None:
            return fixed
        if info.data.get("sliding_window_every_other_decoder_layer"):
            raise ValueError("excludes sliding_window_every_other_decoder_layer")
        if info.data.get("num_heads", fixed.num_verts) % fixed.num_verts:
            raise ValueError("num_verts must divide num_heads")
        return fixed

    @check("memory_tokens")
    @classmethod
    def _memory_has_rotary_positions(
        cls, memory: MemoryTokensConfig, info: ValidationInfo
    ) -> MemoryTokensConfig:
        if memory.places is None:
            return memory
        if info.data.get("position_embedding_type", "rotary") != "rotary":
            raise ValueError("memory tokens require position_embedding_type rotary")
        if not memory.add_chunked_attn_mask:
            return memory
        keys = ("attention_sliding_window_length", "fixed_sparse_attention")
        if any(info.data.get(key) is not None for key in keys):
            raise ValueError(f"add_chunked_attn_mask excludes {' and '.join(keys)}")
        stated = {
            "attention_chunk_size": memory.places.spacing,
            "attention_vertical_column_spacing": memory.places.spacing,
            "attention_vertical_column_width": memory.places.count,
        }
        for key, value in stated.items():
            if info.data.get(key) not in (None, value):
                raise ValueError(f"{key} follows from memory_tokens: {value}")
        return memory
