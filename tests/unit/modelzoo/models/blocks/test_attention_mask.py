"""Terms of attention scores: windows, sinks, packed documents, and biases by distance."""

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from modelzoo.models.blocks.attention_mask import RelativeBias, as_term, distances, readable_keys
from modelzoo.models.gpt.model import GptModel
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.workload.models import build_model

CPU = torch.device("cpu")


def test_window_and_sinks_state_the_keys_of_a_query() -> None:
    """Two keys with the query itself, and the first token."""
    reads = readable_keys(distances(5, CPU), window=2, sink_tokens=1)
    assert [row.nonzero().flatten().tolist() for row in reads] == [
        [0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4],
    ]  # fmt: skip


def test_term_is_minus_infinity_where_a_query_reads_no_key() -> None:
    """And 0, or the bias, elsewhere."""
    term = as_term(distances(2, CPU) >= 0, None, torch.zeros(1))
    assert term.tolist() == [[[[0.0, -torch.inf], [0.0, 0.0]]]]


@pytest.mark.parametrize("reads_later", [False, True])
def test_relative_buckets_are_those_of_t5(reads_later: bool) -> None:
    """Of a decoder and of an encoder, over more positions than buckets."""
    bias = RelativeBias(32, num_heads=1, reads_later=reads_later)
    with torch.no_grad():
        bias.table.weight.copy_(torch.arange(32.0)[:, None])
    before = distances(300, CPU)
    theirs = T5Attention._relative_position_bucket(
        -before, bidirectional=reads_later, num_buckets=32, max_distance=128
    )
    assert torch.equal(bias(before)[0], theirs.float())


def test_packed_documents_have_the_scores_of_separate_ones() -> None:
    """With attention_span and position_ids, for positions that are rotated and learned."""
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    span = torch.tensor([[2, 1, 0, 4, 3, 2, 1, 0]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    for kind in ("rotary", "learned", "fixed", "alibi"):
        section = {**TOKENS, **FOUR_HEADS, **NO_DROPOUT, "name": "gpt2", "initializer_range": 0.3}
        model = build_model(section | {"position_embedding_type": kind}, seed=0)
        assert isinstance(model, GptModel)
        packed = model.logits(tokens, span, positions)
        for part in (slice(0, 3), slice(3, 8)):
            torch.testing.assert_close(packed[:, part], model.logits(tokens[:, part]))
