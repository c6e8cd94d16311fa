"""Seconds of inference of a decoder on GPUs with tensor parallelism.

Prefill is a forward pass over the prompt, bound by matrix products; decode reads all weights and
the KV cache from HBM for every token. Both pay two all-reduces per layer (Shoeybi et al., 2019),
and for every kernel a time that does not depend on its size: most of a token on many GPUs.
"""

from __future__ import annotations

from waferstream.baselines.gpu.communication import Group, all_reduce_s
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.core.arguments import check_least
from waferstream.machine.regions.decoder import Decoder

FORWARD_PASSES = 35
"""16-bit reads and writes of one hidden vector per token and layer: a third of a training step."""

LAYER_KERNELS = 9
"""Kernels of a layer: two norms, products for QKV, output, gate with up, and down, rotation with
the cache, attention, activation. Tensor parallelism adds two all-reduces."""


def prefill_s(decoder: Decoder, tokens: int, gpus: int, cluster: GpuClusterSpec) -> float:
    """Return the seconds to run a prompt of ``tokens`` through ``decoder`` in 16 bit."""
    check_least("a request", tokens=tokens, gpus=gpus)
    gpu = cluster.gpu
    matmul_flops = 2 * decoder.active_weights * tokens
    score_flops = 2 * decoder.layers * decoder.dim * tokens**2  # half of them masked
    moved = FORWARD_PASSES * 2 * decoder.layers * decoder.dim * tokens
    alone = (
        matmul_flops / (gpu.flops_16bit_per_s * gpu.matmul_share)
        + score_flops / (gpu.flops_16bit_per_s * gpu.flash_share)
        + moved / (gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share)
    )
    software_s = cluster.host.prompt_s if gpus > 1 else 0.0
    return software_s + alone / gpus + _layers_s(decoder, tokens, gpus, cluster)


def decode_s_per_token(
    decoder: Decoder, context: int, gpus: int, cluster: GpuClusterSpec, users: int = 1
) -> float:
    """Return the seconds of one decoded token of each of ``users``, which are one batch.

    Args:
        decoder: The model.
        context: Tokens that the token attends to.
        gpus: Ranks of the tensor parallelism.
        cluster: The hardware.
        users: Sequences of the batch, each with its own cache.
    """
    check_least("a request", context=context, gpus=gpus, users=users)
    gpu = cluster.gpu
    read = decoder.read_bytes(users) + decoder.head_bytes + users * decoder.cache_bytes(context)
    flops = 2 * users * decoder.active_weights
    alone = max(
        read / (gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share),
        flops / (gpu.flops_16bit_per_s * gpu.matmul_share),
    )
    return alone / gpus + _layers_s(decoder, users, gpus, cluster)


def request_s(
    decoder: Decoder, prompt: int, output: int, gpus: int, cluster: GpuClusterSpec
) -> float:
    """Return the seconds from a prompt to its last output token.

    Every token is taken at the mean context, since the time is linear in it.
    """
    check_least("a request", output=output)
    per_token = decode_s_per_token(decoder, prompt + output // 2, gpus, cluster)
    return prefill_s(decoder, prompt, gpus, cluster) + output * per_token


def _layers_s(decoder: Decoder, tokens: int, gpus: int, cluster: GpuClusterSpec) -> float:
    """Return the seconds of kernels that no size changes, and of the all-reduces of all layers."""
    all_reduces = 2 if gpus > 1 else 0
    message_bytes = 2 * tokens * decoder.dim
    return decoder.layers * (
        (LAYER_KERNELS + all_reduces) * cluster.gpu.kernel_s
        + all_reduces * _sum_s(message_bytes, Group(gpus, cluster))
    )


def _sum_s(num_bytes: float, group: Group) -> float:
    """Return the seconds of an all-reduce: that of NCCL, or in one shot where that is faster."""
    network = group.cluster.network
    nccl_s = all_reduce_s(num_bytes, group)
    if not (network.one_shot and group.nodes == 1):
        return nccl_s
    read_s = (group.ranks - 1) * num_bytes / group.bandwidth_bytes_per_s
    return min(nccl_s, read_s + 2 * network.small_nvlink_hop_s)
