"""Arithmetic and memory traffic of one micro-batch on one GPU.

A layer is matrix products at a share of the peak, attention at that of its kernel, and everything
that only moves activations at the bandwidth of HBM. The three add up. So small layers are less
efficient without a fitted curve: arithmetic grows with the square of the hidden size, traffic
linearly.
"""

from __future__ import annotations

from baselines.gpu.hardware import GpuClusterSpec, GpuSpec
from baselines.gpu.parallelism import Parallelism, Recompute
from baselines.gpu.software import SoftwareSpec
from baselines.gpu.workload import Workload

_ALIGNED = 8
"""Elements of 16 bit in the 16 bytes that tensor cores want every row to begin at."""

_MATMUL_PASSES: dict[Recompute, float] = {"none": 3, "selective": 3.5, "full": 4}
_OTHER_PASSES: dict[Recompute, float] = {"none": 3, "selective": 4, "full": 4}
"""Forward passes that forward, backward (worth two) and recomputation amount to."""

_FLASH_PASSES: dict[Recompute, float] = {"none": 3.5, "selective": 3.5, "full": 4.5}
"""The same of fused attention, whose backward pass makes the scores anew: five matrix products
against two. Selective recomputation keeps its result."""


def layer_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Seconds of one layer, forward and backward, for one micro-batch on one GPU.

    Tensor parallelism divides all of it but for what every rank reads or writes whole.
    """
    arithmetic = _matmul_s(workload, parallelism, gpu, software) + _attention_s(
        workload, parallelism, gpu, software
    )
    traffic = _traffic_s(workload, parallelism, gpu, software)
    return arithmetic / parallelism.tensor + traffic


def head_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Seconds of output projection and loss, in 16 bit and never recomputed."""
    tokens = parallelism.micro_batch * workload.seq_len
    flops = 6 * workload.head_parameters * tokens
    moved = software.vocabulary_bytes * workload.vocab * tokens
    rate = _matmul_flops_per_s(gpu, software)
    return (flops / rate + moved / _hbm(gpu)) / parallelism.tensor


def optimizer_s(owned_parameters: float, threads: int, cluster: GpuClusterSpec) -> float:
    """Seconds of an Adam update: 16-bit gradient in, 12 bytes of state in and out, weight out.

    On the GPU, or by so many ``threads`` of the host: then gradient and weight pass PCIe.
    """
    if not threads:
        return owned_parameters * (2 + 2 * 12 + 2) / _hbm(cluster.gpu)
    host = cluster.host
    update_s = 1 / (threads * host.adam_per_core_s)
    return owned_parameters * (update_s + (2 + 2) / host.pcie_bandwidth_bytes_per_s)


def _matmul_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    tokens = parallelism.micro_batch * workload.seq_len
    flops = _MATMUL_PASSES[parallelism.recompute] * 2 * workload.layer_parameters * tokens
    rate = _matmul_flops_per_s(gpu, software)
    if parallelism.float8:
        rate *= gpu.flops_8bit_per_s / gpu.flops_16bit_per_s * software.float8_share
    return flops / (rate * _alignment(workload.hidden, gpu))


def _attention_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    scores = parallelism.micro_batch * workload.scores_per_sequence / workload.layers
    flops = 4 * scores * workload.hidden / workload.heads
    if software.flash_attention:  # masked scores are skipped: half of them
        share = gpu.flash_share * software.attention_speed
        passes = _FLASH_PASSES[parallelism.recompute]
        return passes * flops / 2 / (gpu.flops_16bit_per_s * share)
    passes = _OTHER_PASSES[parallelism.recompute]
    rate = _matmul_flops_per_s(gpu, software) * _alignment(workload.head_size, gpu)
    return passes * flops / rate + passes / 3 * software.score_bytes * scores / _hbm(gpu)


def _traffic_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    tokens = parallelism.micro_batch * workload.seq_len
    divided = (software.hidden_passes - software.whole_passes) / parallelism.tensor
    passes = _OTHER_PASSES[parallelism.recompute] / 3 * (divided + software.whole_passes)
    return passes * 2 * workload.hidden * tokens / _hbm(gpu)


def _matmul_flops_per_s(gpu: GpuSpec, software: SoftwareSpec) -> float:
    return gpu.flops_16bit_per_s * gpu.matmul_share * software.matmul_speed


def _alignment(extent: int, gpu: GpuSpec) -> float:
    return gpu.misaligned_share if extent % _ALIGNED else 1.0


def _hbm(gpu: GpuSpec) -> float:
    return gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share
