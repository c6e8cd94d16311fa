"""What data and tensor parallelism send, and how long it takes if nothing hides it."""

from __future__ import annotations

import math
from typing import NamedTuple

from baselines.gpu.collectives import (
    Group,
    all_reduce_s,
    gather_latency_s,
    gather_s,
    ring_latency_s,
)
from baselines.gpu.parallelism import Parallelism
from baselines.gpu.software import SoftwareSpec
from baselines.gpu.workload import Workload

WEIGHT_BYTES = 2
"""Of a weight as it is gathered and kept for computing, in 16 bit."""


class DataTraffic(NamedTuple):
    """Seconds of data-parallel communication."""

    per_micro_batch_s: float
    per_step_s: float


def data_traffic(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> DataTraffic:
    """Gradients summed and weights gathered over the data-parallel ``group``.

    ZeRO-3 gathers weights forward and backward and reduces gradients for every micro-batch, ZeRO-2
    gathers once; ZeRO-1 does both once per step, DDP an all-reduce per step (Rajbhandari et al.,
    2020). Under a pipeline weights stay gathered for all micro-batches of a step.
    """
    parameters = workload.parameters / parallelism.model_parallel
    if parallelism.sharding == "ddp":
        return DataTraffic(0.0, all_reduce_s(parameters * software.gradient_bytes, group))
    gather = gather_s(parameters * WEIGHT_BYTES, group) + _gather_latency_s(
        workload, parallelism, group, software
    )
    reduce = gather_s(parameters * software.gradient_bytes, group) + _reduce_latency_s(
        workload, parallelism, group, software
    )
    if parallelism.sharding == "zero1" or parallelism.pipeline > 1:
        return DataTraffic(0.0, gather + reduce)
    gathers = 2 if parallelism.sharding == "zero3" else 1
    return DataTraffic(gathers * gather + reduce, 0.0)


def tensor_traffic_s(workload: Workload, parallelism: Parallelism, group: Group) -> float:
    """Seconds of one layer's tensor-parallel communication for one micro-batch.

    Two all-reduces forward and two backward (Shoeybi et al., 2019), or as many pairs of gather and
    reduce-scatter with sequence parallelism; one forward where the blocks run beside each other.
    Forward again when the layer is computed again.
    """
    tokens = parallelism.micro_batch * workload.seq_len
    forward = 1 if workload.parallel_blocks else 2
    all_reduces = 2 + forward * (2 if parallelism.recompute == "full" else 1)
    return all_reduces * all_reduce_s(2 * tokens * workload.hidden, group)


def _gather_latency_s(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> float:
    """Latencies of the collectives that gather all weights once."""
    if not (software.gathers_matrices and parallelism.sharding == "zero3"):
        return _collectives(workload, parallelism, software) * ring_latency_s(group)
    shares = (matrix / parallelism.tensor for matrix in workload.matrices)
    layers = workload.layers / parallelism.pipeline
    return layers * sum(gather_latency_s(share, group) for share in shares)


def _reduce_latency_s(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> float:
    """Latencies of the collectives that reduce all gradients once."""
    collectives = _collectives(workload, parallelism, software)
    if software.reduces_to_owner and parallelism.sharding != "zero3":
        collectives += group.ranks  # a bucket that spans several owners is sent in so many slices
    return collectives * ring_latency_s(group)


def _collectives(workload: Workload, parallelism: Parallelism, software: SoftwareSpec) -> float:
    """Buckets, or else layers, that one rank's part of the model comes to."""
    if not software.bucket_parameters:
        return workload.layers / parallelism.pipeline
    return math.ceil(workload.parameters / parallelism.model_parallel / software.bucket_parameters)
