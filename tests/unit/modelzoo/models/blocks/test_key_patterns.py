"""Patterns state the keys that a query reads, and masks of decoders follow them."""

import torch

from modelzoo.models.blocks.attention_mask import distances, readable_keys
from modelzoo.models.blocks.key_patterns import Chunk, Columns, FixedSparse, KeyPattern
from modelzoo.models.gpt.config import GptConfig

CPU = torch.device("cpu")


def keys_of(*patterns: KeyPattern, length: int, window: int | None = None) -> list[list[int]]:
    reads = readable_keys(distances(length, CPU), window, patterns=patterns)
    return [row.nonzero().flatten().tolist() for row in reads.reshape(-1, length)]


def test_chunk_is_read_up_to_the_query() -> None:
    assert keys_of(Chunk(2), length=5) == [[0], [0, 1], [2], [2, 3], [4]]


def test_columns_are_read_beside_chunks_and_windows() -> None:
    """The last of every three keys."""
    columns = Columns(spacing=3, width=1)
    assert keys_of(Chunk(3), columns, length=7)[3:] == [[2, 3], [2, 3, 4], [2, 3, 4, 5], [2, 5, 6]]
    assert keys_of(columns, length=6, window=1) == [[0], [1], [2], [2, 3], [2, 4], [2, 5]]


def test_heads_read_groups_of_summaries_from_the_end_of_each_block() -> None:
    """Blocks of four with two groups of one token each."""
    found = keys_of(FixedSparse(block=4, width=1, groups=(0, 1)), length=6)
    assert found[5] == [3, 4, 5]
    assert found[6 + 5] == [2, 4, 5]


def test_layers_take_the_patterns_of_their_keys() -> None:
    """Every other one is fixed; memory tokens are the columns of chunks."""
    fixed = {"local_attn_ctx": 4, "num_verts": 2, "vert_size": 1, "different_layout_per_head": True}
    config = GptConfig.model_validate(
        {"num_heads": 4, "fixed_sparse_attention": fixed, "attention_sliding_window_length": 2}
    )
    assert [config.window_of(layer) for layer in range(3)] == [2, None, 2]
    assert config.patterns_of(1) == (FixedSparse(4, 1, (0, 1, 0, 1)),)
    assert config.patterns_of(2) == ()
    memory = {"attn_memory_chunk_size": 4, "num_memory_tokens_per_chunk": 2}
    chunked = GptConfig.model_validate(
        {
            "position_embedding_type": "rotary",
            "memory_tokens": memory | {"add_chunked_attn_mask": True},
        }
    )
    assert chunked.patterns_of(0) == (Chunk(6), Columns(6, 2))
