"""Rows of a stage: the same bits in any company, and refusals of models that are not row-wise."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from csnode.inference.cache import BLOCK, PAGE, KvCache
from csnode.micro_batch import SramLedger
from tests.support.errors import raises
from tests.support.models.small_decoder import CONTEXT, HEADS, VOCABULARY, Decoder, Mix, make_stage
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.serving import Part


def by_products(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return scores.tril().softmax(-1) @ value


def over_all(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value)


class AddsOverTokens(Decoder):
    """A model whose tokens see their neighbours beside attention."""

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        scores = super().forward(tokens, positions)
        return scores + 5 * scores.mean(1, keepdim=True)


def test_rows_are_the_same_alone_and_in_company() -> None:
    """To the bit: at once, token by token, in pieces, beside others."""
    stage = make_stage(Decoder())
    tokens = tuple((3 * i + 1) % VOCABULARY for i in range(130))
    at_once = stage.extend([Part("a", 0, tokens)])[0]
    for i, token in enumerate(tokens):
        alone = stage.extend([Part("b", i, (token,))])[0]
    stage.extend([Part("c", 0, tokens[:70]), Part("d", 0, tokens[:9])])
    in_company = stage.extend([Part("d", 9, (5,)), Part("c", 70, tokens[70:]), Part("e", 0, (1,))])
    assert torch.equal(at_once, alone)
    assert torch.equal(at_once, in_company[1])


def test_parts_ask_for_the_scores_of_their_last_tokens() -> None:
    stage = make_stage(Decoder())
    tokens = tuple((5 * i + 2) % VOCABULARY for i in range(9))
    each = torch.cat([stage.extend([Part("a", i, (token,))]) for i, token in enumerate(tokens)])
    asked = [Part("b", 0, tokens, 3), Part("c", 0, tokens[:4], 0), Part("d", 0, tokens[:2], 2)]
    assert torch.equal(stage.extend(asked), torch.cat([each[-3:], each[:2]]))


def test_refused_tokens_leave_no_trace() -> None:
    """A part that begins within the cache replaces what it has from there on."""
    stage = make_stage(Decoder())
    tokens = tuple((5 * i + 2) % VOCABULARY for i in range(BLOCK + 9))
    expected = stage.extend([Part("a", 0, tokens)])
    stage.extend([Part("b", 0, tokens[:40] + (1,) * 60)])
    assert torch.equal(stage.extend([Part("b", 40, tokens[40:])]), expected)


@pytest.mark.parametrize("copied", [1, BLOCK - 1, BLOCK, BLOCK + 7])
def test_sequence_goes_on_from_the_first_tokens_of_another(copied: int) -> None:
    """With the same bits, also once the other is forgotten or has gone on."""
    stage = make_stage(Decoder())
    tokens = tuple((3 * i + 1) % VOCABULARY for i in range(BLOCK + 9))
    expected = stage.extend([Part("a", 0, tokens)])
    stage.copy("a", "b", copied)
    stage.copy("a", "c", copied)
    stage.extend([Part("a", copied, (0,) * 3)])
    stage.forget("a")
    assert torch.equal(stage.extend([Part("b", copied, tokens[copied:])]), expected)
    stage.extend([Part("c", copied, (0, 0))])
    stage.forget("b")
    stage.forget("c")
    assert stage.cache.num_bytes == 0


def test_copy_leases_memory() -> None:
    memory = SramLedger("a stage", 10)
    stage = make_stage(memory=memory)
    stage.extend([Part("a", 0, (1, 2, 3, 4, 5, 6))])
    stage.copy("a", "b", 4)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded"):
        stage.copy("a", "c", 1)
    stage.forget("b")
    stage.copy("a", "c", 1)


@pytest.mark.parametrize("function", [F.silu, F.gelu, torch.tanh, torch.Tensor.sigmoid])
def test_functions_of_any_width_are_steady(function: Callable[..., torch.Tensor]) -> None:
    """Rows of 50 elements would end in other parts of a vector in other company."""

    def scores(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.randn(CONTEXT, 50)[positions] + tokens[..., None] / 7
        key = x[..., None, :10].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(key, key, key, is_causal=True)
        found: torch.Tensor = function(x) + mixed.transpose(1, 2).flatten(2).sum(-1, keepdim=True)
        return found

    stage = make_stage(scores)
    tokens = tuple(i % VOCABULARY for i in range(60))
    rows = stage._rows([Part("a", 0, tokens)])
    for length in range(1, 60):
        assert torch.equal(stage._rows([Part(f"{length}", 0, tokens[:length])]), rows[:length])


def test_scores_are_those_of_the_model() -> None:
    model = Decoder()
    stage = make_stage(model)
    tokens = tuple(i % VOCABULARY for i in range(40))
    plain = model(torch.tensor([tokens]), torch.arange(40)[None])[0, -1]
    torch.testing.assert_close(stage.extend([Part("a", 0, tokens)])[0], plain.detach())


@pytest.mark.parametrize("mix", [by_products, over_all])
def test_other_attention_is_refused(mix: Mix) -> None:
    with raises(ConfigError, "model-not-row-wise"):
        make_stage(Decoder(mix))


def test_model_that_relates_tokens_otherwise_is_refused() -> None:
    with raises(ConfigError, "rows-differ-from-model"):
        make_stage(AddsOverTokens())


def test_cache_grows_by_blocks_and_forgets() -> None:
    cache = KvCache()
    rows = torch.randn(BLOCK + 1, HEADS, 4)
    keys, _ = cache.extend("a", 0, 0, rows, rows)
    assert keys.shape == (HEADS, 2 * BLOCK, 4)
    assert torch.equal(keys[:, : BLOCK + 1], rows.transpose(0, 1))
    assert not keys[:, BLOCK + 1 :].any()
    assert cache.num_bytes == 2 * HEADS * PAGE * 4 * 4
    cache.forget("a")
    cache.forget("a")
    assert cache.num_bytes == 0


def test_sequences_lease_memory_until_they_are_forgotten() -> None:
    """What does not fit is refused, and what others have stays."""
    memory = SramLedger("a stage", 10)
    stage = make_stage(memory=memory)
    stage.extend([Part("a", 0, (1, 2, 3, 4)), Part("b", 0, (1, 2))])
    stage.extend([Part("a", 4, (5,))])
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded"):
        stage.extend([Part("c", 0, (1, 2, 3, 4))])
    stage.forget("a")
    stage.forget("a")
    stage.extend([Part("c", 0, (1, 2, 3, 4))])
