"""Time of batches: layers that stay against weights that stream."""

from __future__ import annotations

from math import inf

import pytest

from waferstream.machine.regions.batch_time import BatchTime
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import Service


def batch(name: str, prompt: int = 500, answer: int = 200) -> BatchTime:
    return BatchTime(Service(DECODERS[name], 8192), prompt, answer)


def test_layers_that_stay_take_each_request_in_turn() -> None:
    time = batch("llama-3-8b")
    assert time.resident_s(200) == pytest.approx(2 * time.resident_s(100))


def test_stream_serves_all_that_fit_at_a_time() -> None:
    time = batch("llama-3-8b")
    assert time.streamed_s(100) < 1.01 * time.streamed_s(1)


def test_crossover_is_the_first_batch_that_the_stream_answers_faster() -> None:
    time = batch("llama-3-8b")
    fewest = time.crossover
    assert fewest is not None
    assert time.streamed_s(fewest) < time.resident_s(fewest)
    assert time.streamed_s(fewest - 1) >= time.resident_s(fewest - 1)


def test_large_model_on_several_wafers_has_none() -> None:
    """Its stream is slow, and few of its sequences fit beside it."""
    assert batch("llama-3.1-70b").crossover is None


def test_sequence_that_does_not_fit_is_never_streamed() -> None:
    service = Service(DECODERS["llama-3-8b"], 8192)
    time = BatchTime(service, 10**6, 10)
    assert time.streamed_s(1) == inf
    assert time.crossover is None
