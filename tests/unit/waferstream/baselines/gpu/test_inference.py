"""Inference on GPUs with tensor parallelism."""

import pytest

from waferstream.baselines.gpu.clusters import DGX_A100, WAFERLLM_TESTBED
from waferstream.baselines.gpu.inference import (
    decode_s_per_token,
    prefill_s,
    request_s,
)
from waferstream.core.errors import ConfigError
from waferstream.machine.regions.decoder import Decoder

LLAMA_8B = Decoder(dim=4096, ffn=14_336, layers=32, kv_dim=1024, vocabulary=128_256)


LLAMA_7B = Decoder(dim=4096, ffn=11_008, layers=32, kv_dim=4096, vocabulary=32_000)


@pytest.mark.parametrize(("gpus", "published"), [(1, 78.9), (8, 260.4), (16, 164.6)])
def test_decode_s_per_token_meets_its_calibration_rows(gpus: int, published: float) -> None:
    """G0443 to G0445: more GPUs read faster, but two nodes add latency."""
    seconds = decode_s_per_token(LLAMA_8B, 4096, gpus, WAFERLLM_TESTBED)
    assert 1 / seconds == pytest.approx(published, rel=0.2)


@pytest.mark.parametrize(("gpus", "published"), [(1, 13_988.3), (8, 17_361.6), (16, 13_994.2)])
def test_prefill_s_meets_its_calibration_rows(gpus: int, published: float) -> None:
    """G0432 to G0434; the first is met with the matmul share of training, without a fit."""
    seconds = prefill_s(LLAMA_8B, 4096, gpus, WAFERLLM_TESTBED)
    assert 4096 / seconds == pytest.approx(published, rel=0.08)


def test_decode_s_per_token_on_one_gpu_is_its_hbm_traffic_and_its_kernels() -> None:
    """All weights, the head and the cache of 10 tokens, at the rate of its HBM; nine a layer."""
    read_bytes = LLAMA_8B.weight_bytes + 2 * 128_256 * 4096 + LLAMA_8B.cache_bytes(10)
    gpu = DGX_A100.gpu
    read_s = read_bytes / (gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share)
    alone_s = decode_s_per_token(LLAMA_8B, 10, 1, DGX_A100)
    assert alone_s == pytest.approx(read_s + 32 * 9 * gpu.kernel_s)


def test_kernels_limit_tokens_on_many_gpus() -> None:
    """Eight GPUs read in an eighth of the time; 11 kernels in each layer stay (G0561, G0564)."""
    one, eight = (decode_s_per_token(LLAMA_7B, 105, gpus, DGX_A100) for gpus in (1, 8))
    assert 2 < one / eight < 3.5


def test_nvlink_speeds_up_prefill_on_eight_gpus() -> None:
    """With the links of a DGX, eight GPUs prefill at least five times as fast as one."""
    one, eight = (prefill_s(LLAMA_8B, 4096, gpus, DGX_A100) for gpus in (1, 8))
    assert one > 5 * eight


def test_request_s_is_prefill_plus_decoded_tokens() -> None:
    """Every token is taken at the mean context."""
    whole = request_s(LLAMA_8B, 2048, 128, 8, WAFERLLM_TESTBED)
    prompt = prefill_s(LLAMA_8B, 2048, 8, WAFERLLM_TESTBED)
    token = decode_s_per_token(LLAMA_8B, 2048 + 64, 8, WAFERLLM_TESTBED)
    assert whole == pytest.approx(prompt + 128 * token)


def test_empty_request_is_refused() -> None:
    """No tokens, no context, no GPUs."""
    with pytest.raises(ConfigError) as refused:
        prefill_s(LLAMA_8B, 0, 1, DGX_A100)
    assert refused.value.where == "tokens"
    with pytest.raises(ConfigError) as refused:
        decode_s_per_token(LLAMA_8B, 0, 1, DGX_A100)
    assert refused.value.where == "context"
    with pytest.raises(ConfigError) as refused:
        prefill_s(LLAMA_8B, 1, 0, DGX_A100)
    assert refused.value.where == "gpus"
