"""Inference of a decoder on GPUs with tensor parallelism, one request at a time.

Prefill is a forward pass over the prompt, bound by matrix products; decode reads all weights and
the KV cache from HBM for every token. Both pay two all-reduces per layer (Shoeybi et al., 2019).
Decoding rests on one row per number of GPUs, so its latencies are those of the testbed, not of
NVLink; see ``WaferLlmNetwork``.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat

from baselines.gpu.collectives import Group, all_reduce_s
from baselines.gpu.hardware import GpuClusterSpec, GpuSpec, NetworkSpec
from baselines.wafer_inference import Decoder
from timing.hardware.sourced import sourced
from timing.least import check_least

FORWARD_PASSES = 35
"""16-bit reads and writes of one hidden vector per token and layer: a third of a training step."""


class WaferLlmA100(GpuSpec):
    """An A100 of the WaferLLM testbed, as seen through its serving software.

    One of 80 GB: table 6 has it read 2.1 GB in 1.231 ms, more than one of 40 GB can.
    """

    name: str = "A100, WaferLLM testbed"
    hbm_share: PositiveFloat = sourced(
        0.602, "fitted", "G0443: weights and cache read per decoded token on one GPU", le=1
    )
    nvlink_bandwidth_bytes_per_s: PositiveFloat = sourced(
        19.1e9, "fitted", "G0433: all-reduces of a prompt inside a node; the link is not stated"
    )


class WaferLlmNetwork(NetworkSpec):
    """Latencies and NICs of the WaferLLM testbed, serving software included."""

    nic_bandwidth_bytes_per_s: PositiveFloat = sourced(
        1.87e9, "fitted", "G0434: all-reduces of a prompt over two nodes, per GPU"
    )
    nvlink_hop_s: NonNegativeFloat = sourced(
        2.46e-6, "fitted", "G0444: all-reduces of a token inside a node"
    )
    tree_hop_s: NonNegativeFloat = sourced(
        23.5e-6, "fitted", "G0445: all-reduces of a token over two nodes"
    )
    nic_hop_s: NonNegativeFloat = sourced(23.5e-6, "fitted", "G0445: as a step of a tree")


WAFERLLM_TESTBED = GpuClusterSpec(gpu=WaferLlmA100(), network=WaferLlmNetwork())


def prefill_s(decoder: Decoder, tokens: int, gpus: int, cluster: GpuClusterSpec) -> float:
    """Seconds to run a prompt of ``tokens`` through ``decoder``, in 16 bit, on ``gpus``."""
    check_least("a request", tokens=tokens, gpus=gpus)
    gpu = cluster.gpu
    matmul_flops = decoder.weight_bytes * tokens  # two per weight of two bytes
    score_flops = 2 * decoder.layers * decoder.dim * tokens**2  # half of them masked
    moved = FORWARD_PASSES * 2 * decoder.layers * decoder.dim * tokens
    alone = (
        matmul_flops / (gpu.flops_16bit_per_s * gpu.matmul_share)
        + score_flops / (gpu.flops_16bit_per_s * gpu.flash_share)
        + moved / (gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share)
    )
    return alone / gpus + _all_reduces_s(decoder, tokens, gpus, cluster)


def decode_s_per_token(
    decoder: Decoder, vocab: int, context: int, gpus: int, cluster: GpuClusterSpec
) -> float:
    """Seconds for one token out of ``vocab`` that attends to ``context`` others, on ``gpus``."""
    check_least("a request", context=context, gpus=gpus)
    gpu = cluster.gpu
    head_bytes = 2 * vocab * decoder.dim
    read = decoder.weight_bytes + head_bytes + decoder.cache_bytes(context)
    alone = read / (gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share)
    return alone / gpus + _all_reduces_s(decoder, 1, gpus, cluster)


def request_s(
    decoder: Decoder, vocab: int, prompt: int, output: int, gpus: int, cluster: GpuClusterSpec
) -> float:
    """Seconds from a prompt to its last output token; the cache grows, taken at its mean."""
    check_least("a request", output=output)
    per_token = decode_s_per_token(decoder, vocab, prompt + output // 2, gpus, cluster)
    return prefill_s(decoder, prompt, gpus, cluster) + output * per_token


def _all_reduces_s(decoder: Decoder, tokens: int, gpus: int, cluster: GpuClusterSpec) -> float:
    return 2 * decoder.layers * all_reduce_s(2 * tokens * decoder.dim, Group(gpus, cluster))
