"""Weights and bytes of decoders."""

from __future__ import annotations

import pytest

from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.published import DECODERS, DRAFTS

BILLIONS = {
    "llama-3.1-8b": (8.03, 7.5),
    "llama-3.1-70b": (70.6, 69.5),
    "qwen3-32b": (32.8, 32.0),
    "qwen3-235b-a22b": (235, 22),
    "gpt-oss-120b": (117, 5.1),
    "glm-4.7": (358, 32),
    "kimi-k2.6": (1026, 32),
}
"""All weights as published, and those of the layers that a token passes with the head."""


@pytest.mark.parametrize("name", BILLIONS)
def test_weights_of_published_shapes(name: str) -> None:
    """Within 3 % of what the models are called; GLM's first layers have no experts in fact."""
    decoder, (published, active) = DECODERS[name], BILLIONS[name]
    table = decoder.vocabulary * decoder.dim
    every = decoder.layers * decoder.layer_weights + 2 * table
    assert every / 1e9 == pytest.approx(published, rel=0.03)
    assert (decoder.active_weights + table) / 1e9 == pytest.approx(active, rel=0.05)


def test_drafts_are_much_smaller_than_their_models() -> None:
    """A tenth of the layers' weights or less."""
    for name, draft in DRAFTS.items():
        assert draft.shape.weight_bytes <= DECODERS[name].weight_bytes / 10
        assert draft.shape.vocabulary == DECODERS[name].vocabulary


def test_batches_read_the_experts_that_they_meet() -> None:
    """One token reads its own, many read all; a dense model reads everything for each."""
    sparse = DECODERS["gpt-oss-120b"]
    one = sparse.read_bytes(1)
    assert one == pytest.approx(sparse.active_weights * sparse.weight_bits / 8, rel=0.01)
    assert one < sparse.read_bytes(8) < sparse.read_bytes(1000) <= sparse.weight_bytes
    dense = DECODERS["llama-3.1-8b"]
    assert dense.read_bytes(1) == dense.weight_bytes


def test_ungated_block_has_two_products() -> None:
    """As in GPT-2."""
    gated = Decoder(dim=8, ffn=32, layers=1, kv_dim=8)
    plain = Decoder(dim=8, ffn=32, layers=1, kv_dim=8, is_gated=False)
    assert gated.layer_weights - plain.layer_weights == 8 * 32
