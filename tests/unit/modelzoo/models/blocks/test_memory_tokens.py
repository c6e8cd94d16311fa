"""Memory tokens lie behind every chunk that others follow, with weights of their own."""

import pytest
import torch

from modelzoo.models.blocks.memory_tokens import MemoryEmbedding, MemoryLinear, MemoryPlaces
from modelzoo.models.gpt.model import GptModel
from tests.support.errors import raises
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.core.errors import ConfigError
from waferstream.workload.models import build_model

PLACES = MemoryPlaces(chunk=2, count=1)
KEYS = {
    "attn_memory_chunk_size": 2, "num_memory_tokens_per_chunk": 1, "memory_token_id": 7,
    "add_qkv_memory_weights": True, "add_extra_embedding": True, "add_chunked_attn_mask": True,
}  # fmt: skip
SECTION = {
    "name": "gpt2", **TOKENS, **FOUR_HEADS, **NO_DROPOUT, "position_embedding_type": "rotary",
    "memory_tokens": KEYS, "initializer_range": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([1], [1]), ([1, 2], [1, 2]), ([1, 2, 3], [1, 2, 7, 3]), ([1, 2, 3, 4, 5], [1, 2, 7, 3, 4, 7, 5])],
)  # fmt: skip
def test_memory_is_inserted_and_removed(tokens: list[int], expected: list[int]) -> None:
    inserted = PLACES.insert(torch.tensor([tokens]), 7)
    assert inserted.tolist() == [expected]
    assert PLACES.remove(inserted[..., None].float())[..., 0].tolist() == [tokens]


def test_memory_has_weights_of_its_own() -> None:
    """In projections and in place of the embedding."""
    x = torch.randn(2, 4, 3)
    linear, embedding = MemoryLinear(PLACES, 3, 5, bias=True), MemoryEmbedding(PLACES, 3)
    plain = torch.nn.functional.linear(x, linear.weight, linear.bias)
    found = linear(x)
    torch.testing.assert_close(found[:, [0, 1, 3]], plain[:, [0, 1, 3]])
    torch.testing.assert_close(found[:, 2], linear.memory(x[:, 2]))
    torch.nn.init.normal_(embedding.weight)
    embedded = embedding(x)
    assert torch.equal(embedded[:, [0, 1, 3]], x[:, [0, 1, 3]])
    assert torch.equal(embedded[:, 2], embedding.weight.expand(2, 3))


def test_later_chunks_read_earlier_ones_by_their_memory_alone() -> None:
    """In one layer the memory of a chunk is all that the next one sees of it."""
    model = build_model(SECTION | {"num_hidden_layers": 1}, seed=0)
    assert isinstance(model, GptModel)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    scores = model.logits(tokens)
    assert scores.shape == (1, 6, model.config.vocab_size)
    changed = model.logits(tokens.masked_fill(tokens < 3, 9))
    assert torch.equal(changed[:, 2:], scores[:, 2:])
    assert not torch.equal(changed[:, :2], scores[:, :2])
    with torch.no_grad():
        assert model.memory_embedding is not None
        model.memory_embedding.weight.add_(torch.randn(model.config.hidden_size))
    assert not torch.allclose(model.logits(tokens)[:, 2:], scores[:, 2:])


def test_packed_documents_are_refused() -> None:
    model = build_model(SECTION, seed=0)
    assert isinstance(model, GptModel)
    with raises(ConfigError, "packed-with-memory"):
        model.logits(torch.ones(1, 4, dtype=torch.int64), position_ids=torch.arange(4)[None])
