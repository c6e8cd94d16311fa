"""What data and tensor parallelism send, and how long it takes if nothing hides it."""

from __future__ import annotations

from typing import NamedTuple

from wsc.timing.gpu.collectives import Group, all_reduce_s, gather_s, ring_latency_s
from wsc.timing.gpu.parallelism import Parallelism
from wsc.timing.gpu.software import SoftwareSpec
from wsc.timing.gpu.workload import Workload

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
    if group.ranks == 1:
        return DataTraffic(0.0, 0.0)
    parameters = workload.parameters / parallelism.model_parallel
    if parallelism.sharding == "ddp":
        return DataTraffic(0.0, all_reduce_s(parameters * software.gradient_bytes, group))
    layers = workload.layers / parallelism.pipeline
    gather = gather_s(parameters * WEIGHT_BYTES, group) + _pass_latency_s(layers, group, software)
    reduce = gather_s(parameters * software.gradient_bytes, group) + (
        group.ranks * ring_latency_s(group)
        if software.reduces_to_owner and parallelism.sharding != "zero3"
        else _pass_latency_s(layers, group, software)
    )
    if parallelism.sharding == "zero1" or parallelism.pipeline > 1:
        return DataTraffic(0.0, gather + reduce)
    gathers = 2 if parallelism.sharding == "zero3" else 1
    return DataTraffic(gathers * gather + reduce, 0.0)


def tensor_traffic_s(workload: Workload, parallelism: Parallelism, group: Group) -> float:
    """Seconds of one layer's tensor-parallel communication for one micro-batch.

    Two all-reduces forward and two backward (Shoeybi et al., 2019), or as many pairs of gather and
    reduce-scatter with sequence parallelism; two more when the layer is computed again.
    """
    if group.ranks == 1:
        return 0.0
    tokens = parallelism.micro_batch * workload.seq_len
    all_reduces = 6 if parallelism.recompute == "full" else 4
    return all_reduces * all_reduce_s(2 * tokens * workload.hidden, group)


def _pass_latency_s(layers: float, group: Group, software: SoftwareSpec) -> float:
    """Latencies of one pass over the layers; constants count the three passes of ZeRO-3."""
    collectives = software.collectives_per_layer * layers + software.collectives_per_step
    return collectives / 3 * ring_latency_s(group)
