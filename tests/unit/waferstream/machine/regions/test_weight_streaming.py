"""Batches whose weights stream, against layers that stay."""

from __future__ import annotations

import pytest

from waferstream.machine.hardware import CS3
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import Service
from waferstream.machine.regions.weight_streaming import (
    WeightStreaming,
    crossover,
    resident_tokens_per_s,
)

LLAMA_70B = DECODERS["llama-3.1-70b"]
STREAMING = WeightStreaming(LLAMA_70B, 1000, CS3, 1)


def test_step_of_a_small_batch_is_the_stream() -> None:
    """139 GB at 150 GB/s, and the start of 80 layers; more sequences wait no longer."""
    stream_s = (LLAMA_70B.weight_bytes + LLAMA_70B.head_bytes) / 150e9
    one = STREAMING.step_ps(1) / 1e12
    assert one == pytest.approx(stream_s + 80 * CS3.segment_overhead_ps / 1e12)
    assert STREAMING.step_ps(50) == STREAMING.step_ps(1)
    assert STREAMING.step_ps(10**6) > 2 * STREAMING.step_ps(1)


def test_batch_beyond_the_cache_gains_nothing() -> None:
    """The rest waits for another round."""
    most = STREAMING.most_sequences
    assert most * LLAMA_70B.cache_bytes(1000) < CS3.sram_bytes
    assert STREAMING.tokens_per_s(most) == STREAMING.tokens_per_s(10 * most)
    assert STREAMING.tokens_per_s(most // 2) < STREAMING.tokens_per_s(most)


def test_model_larger_than_its_wafers_answers_nothing() -> None:
    """Not one sequence fits beside two layers."""
    wide = Decoder(dim=65536, ffn=262144, layers=2, kv_dim=65536)
    assert WeightStreaming(wide, 1000, CS3, 4).tokens_per_s(8) == 0.0


def test_more_wafers_share_a_batch() -> None:
    """Each has its part of the sequences, and the stream reaches all at once."""
    four = WeightStreaming(LLAMA_70B, 1000, CS3, 4)
    assert four.most_sequences == 4 * STREAMING.most_sequences
    assert four.tokens_per_s(400) == pytest.approx(4 * STREAMING.tokens_per_s(100))


@pytest.mark.parametrize("context", [1, 1000])
def test_crossover_is_the_first_batch_that_streams_faster(context: int) -> None:
    """With a cache of one token there is one; with one of a thousand there is none."""
    service = Service(DECODERS["llama-3.1-8b"], 1024)
    found = crossover(service, context)
    if context > 1:
        assert found is None
        return
    assert found is not None
    streaming = WeightStreaming(service.layout.decoder, context, CS3, service.layout.num_wafers)
    for batch, is_faster in ((found - 1, False), (found, True)):
        stays = resident_tokens_per_s(service, context, batch)
        assert (streaming.tokens_per_s(batch) > stays) is is_faster
