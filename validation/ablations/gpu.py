"""Ablations of GPU clusters: what is recomputed, hidden, split or fused, and small messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from validation.ablations.ablation import Ablation
from validation.families.gpu import serving_cluster, serving_rate, training_rate
from validation.families.gpu_runs import GpuRun, gpu_run
from validation.rows.row import Row
from waferstream.baselines.gpu.chips import B200, H100
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.software import FSDP


def _trained(change: Callable[[GpuRun], GpuRun]) -> Callable[[Row], float]:
    """Return the prediction of a row of training after a change of its run."""
    return lambda row: training_rate(row, change(gpu_run(row)))


def _served(change: Callable[[GpuClusterSpec], GpuClusterSpec]) -> Callable[[Row], float]:
    """Return the prediction of a row of inference on a changed cluster."""
    return lambda row: serving_rate(row, change(serving_cluster(row)))


def _with_software(**changed: Any) -> Callable[[Row], float]:
    return _trained(lambda run: replace(run, software=run.software.model_copy(update=changed)))


def _recomputes_whole_layers(run: GpuRun) -> GpuRun:
    if run.parallelism.recompute != "needed":
        return run
    return replace(run, parallelism=replace(run.parallelism, recompute="full"))


def _optimizes_on_gpus(run: GpuRun) -> GpuRun:
    return replace(run, parallelism=replace(run.parallelism, optimizer_threads=0))


def _aligned(run: GpuRun) -> GpuRun:
    cluster = _with_gpu(run.cluster, misaligned_share=1.0)
    network = cluster.network.model_copy(update={"misaligned_hops": 1.0})
    return replace(run, cluster=cluster.model_copy(update={"network": network}))


def _with_attention_as_an_h100(run: GpuRun) -> GpuRun:
    if run.cluster.gpu != B200:
        return run
    return replace(run, cluster=_with_gpu(run.cluster, flash_share=H100.flash_share))


def _without_small_messages(cluster: GpuClusterSpec) -> GpuClusterSpec:
    network = cluster.network
    as_large = {
        "one_shot": False,
        "small_nvlink_hop_s": network.nvlink_hop_s,
        "small_nic_hop_s": network.nic_hop_s,
        "small_tree_hop_s": network.tree_hop_s,
    }
    return cluster.model_copy(update={"network": network.model_copy(update=as_large)})


def _with_gpu(cluster: GpuClusterSpec, **changed: float) -> GpuClusterSpec:
    return cluster.model_copy(update={"gpu": cluster.gpu.model_copy(update=changed)})


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "recomputation as far as needed",
        "a layer is recomputed to its end",
        "GPU training",
        _trained(_recomputes_whole_layers),
    ),
    Ablation(
        "optimizer on the host",
        "GPUs update all weights",
        "GPU training",
        _trained(_optimizes_on_gpus),
    ),
    Ablation(
        "misaligned extents",
        "products and shards of any size are as fast",
        "GPU training",
        _trained(_aligned),
    ),
    Ablation(
        "bytes that prefetching hides",
        "bytes are exposed as steps are",
        "GPU training",
        _with_software(exposed_bytes_share=1.0),
    ),
    Ablation(
        "traffic of unfused attention",
        "scores move without time",
        "GPU training",
        _with_software(score_bytes=0.0),
    ),
    Ablation(
        "traffic of kernels that are not fused",
        "all stacks fuse as FSDP does",
        "GPU training",
        _with_software(hidden_passes=FSDP.hidden_passes),
    ),
    Ablation(
        "casts of float8",
        "8-bit products reach the share of 16-bit ones",
        "GPU training",
        _with_software(float8_share=1.0),
    ),
    Ablation(
        "products that tensor parallelism splits",
        "they are as fast as whole ones",
        "GPU training",
        _with_software(matmul_speed=1.0),
    ),
    Ablation(
        "exponentials of a B200",
        "attention reaches the share of an H100",
        "GPU training Megatron",
        _trained(_with_attention_as_an_h100),
    ),
    Ablation(
        "time of small kernels",
        "a kernel takes the time of its traffic",
        "GPU inference",
        _served(lambda cluster: _with_gpu(cluster, kernel_s=0.0)),
    ),
    Ablation(
        "small messages",
        "they go the way of large ones",
        "GPU inference",
        _served(_without_small_messages),
    ),
)
