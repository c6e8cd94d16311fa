"""Inference on GPUs with tensor parallelism."""

import pytest

from baselines.gpu import (
    DGX_A100,
    WAFERLLM_TESTBED,
    decode_s_per_token,
    prefill_s,
    request_s,
)
from baselines.wafer_inference import Decoder
from wsc.core.errors import ConfigError

LLAMA_8B = Decoder(dim=4096, ffn=14_336, layers=32, kv_dim=1024)
VOCAB = 128_256


@pytest.mark.parametrize(("gpus", "published"), [(1, 78.9), (8, 260.4), (16, 164.6)])
def test_decode_meets_the_rows_it_was_fitted_to(gpus, published):
    """G0443 to G0445: more GPUs read faster, but two nodes wait for each other."""
    seconds = decode_s_per_token(LLAMA_8B, VOCAB, 4096, gpus, WAFERLLM_TESTBED)
    assert 1 / seconds == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("gpus", "published"), [(1, 13_988.3), (8, 17_361.6), (16, 13_994.2)])
def test_prefill_meets_the_rows_it_was_fitted_to(gpus, published):
    """G0432 to G0434; the first is met by what training sustains, with nothing fitted."""
    seconds = prefill_s(LLAMA_8B, 4096, gpus, WAFERLLM_TESTBED)
    assert 4096 / seconds == pytest.approx(published, rel=0.01)


def test_one_gpu_reads_its_bytes_and_waits_for_nobody():
    """All weights, the head and the cache of 10 tokens, at the rate of its HBM."""
    read_bytes = LLAMA_8B.weight_bytes + 2 * VOCAB * 4096 + LLAMA_8B.cache_bytes(10)
    hbm_bytes_per_s = DGX_A100.gpu.hbm_bandwidth_bytes_per_s * DGX_A100.gpu.hbm_share
    alone_s = decode_s_per_token(LLAMA_8B, VOCAB, 10, 1, DGX_A100)
    assert alone_s == pytest.approx(read_bytes / hbm_bytes_per_s)


def test_nvlink_makes_tensor_parallelism_worth_it():
    """With the links of a DGX, eight GPUs prefill at least five times as fast as one."""
    one, eight = (prefill_s(LLAMA_8B, 4096, gpus, DGX_A100) for gpus in (1, 8))
    assert one > 5 * eight


def test_a_request_is_its_prompt_and_its_tokens():
    """The cache grows while tokens come; half of them is its mean."""
    whole = request_s(LLAMA_8B, VOCAB, 2048, 128, 8, WAFERLLM_TESTBED)
    prompt = prefill_s(LLAMA_8B, 2048, 8, WAFERLLM_TESTBED)
    token = decode_s_per_token(LLAMA_8B, VOCAB, 2048 + 64, 8, WAFERLLM_TESTBED)
    assert whole == pytest.approx(prompt + 128 * token)


def test_a_request_of_nothing_is_refused():
    """No tokens, no context, no GPUs."""
    with pytest.raises(ConfigError, match="tokens"):
        prefill_s(LLAMA_8B, 0, 1, DGX_A100)
    with pytest.raises(ConfigError, match="context"):
        decode_s_per_token(LLAMA_8B, VOCAB, 0, 1, DGX_A100)
    with pytest.raises(ConfigError, match="gpus"):
        prefill_s(LLAMA_8B, 1, 0, DGX_A100)
