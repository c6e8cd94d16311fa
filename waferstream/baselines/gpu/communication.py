"""Seconds of GPU collectives, and of the communication of data and tensor parallelism.

A collective takes bytes over bandwidth plus one latency per step of a ring or tree. Gathers and
reduce-scatters run around a ring, in which every other rank is a step, so their latency grows
with the cluster; an all-reduce may run over a tree instead, whose depth grows with the logarithm
of the nodes, and by a protocol with half the bandwidth and shorter steps. NCCL chooses among them
in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.software import SoftwareSpec
from waferstream.baselines.gpu.workload import Parallelism, Workload

ALIGNED = 8
"""Elements of 16 bit in the 16 bytes to which NCCL wants every shard aligned."""

WEIGHT_BYTES = 2
"""Bytes of a weight as it is gathered and kept for computing: 16 bit."""


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: every ``stride``-th GPU of the cluster, ``ranks`` of them."""

    ranks: int
    cluster: GpuClusterSpec
    stride: int = 1

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one full node."""
        return max(1, self.cluster.gpus_per_node // self.stride)

    @property
    def nodes(self) -> int:
        """Nodes that the group covers."""
        return -(-self.ranks // self.ranks_per_node)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bytes that every rank of a ring sends, and receives, per second."""
        # The rings of several channels leave a node through different NICs, so the NICs of all
        # its ranks carry the traffic of one ring.
        nvlink = self.cluster.gpu.nvlink_bandwidth_bytes_per_s
        nics = self.cluster.network.nic_bandwidth_bytes_per_s * self.ranks_per_node
        return nvlink if self.nodes == 1 else min(nvlink, nics)


def gather_s(num_bytes: float, group: Group) -> float:
    """Return the seconds of an all-gather or reduce-scatter, without latency.

    Args:
        num_bytes: Size of the whole gathered (or reduced) buffer.
        group: The ranks that take part.
    """
    return num_bytes * (group.ranks - 1) / group.ranks / group.bandwidth_bytes_per_s


def ring_latency_s(group: Group) -> float:
    """Return the seconds that the first byte takes around the ring: one step per other rank."""
    between = group.nodes - 1
    inside = group.ranks - 1 - between
    network = group.cluster.network
    return inside * network.nvlink_hop_s + between * network.nic_hop_s


def gather_latency_s(elements: float, group: Group) -> float:
    """Return the ring latency of a gather of 16-bit ``elements``; misaligned shards take longer."""
    aligned = elements % (ALIGNED * group.ranks) == 0
    return ring_latency_s(group) * (1 if aligned else group.cluster.network.misaligned_hops)


def all_reduce_s(num_bytes: float, group: Group) -> float:
    """Return the seconds of an all-reduce by the fastest algorithm and protocol."""
    transfer = 2 * gather_s(num_bytes, group)
    network = group.cluster.network
    large = _latency_s(group, network.nvlink_hop_s, network.nic_hop_s, network.tree_hop_s)
    small = _latency_s(
        group, network.small_nvlink_hop_s, network.small_nic_hop_s, network.small_tree_hop_s
    )
    return min(transfer + large, 2 * transfer + small)


def _latency_s(group: Group, inside_s: float, between_s: float, tree_s: float) -> float:
    """Return the latency of an all-reduce with these steps: twice around a ring, or a tree.

    A tree over nodes has a chain inside each node, and is passed up and down.
    """
    chain = min(group.ranks, group.ranks_per_node) - 1
    between = group.nodes - 1
    ring = (group.ranks - 1 - between) * inside_s + between * between_s
    return 2 * min(ring, chain * inside_s + math.log2(group.nodes) * tree_s)


class DataTraffic(NamedTuple):
    """Seconds of data-parallel communication."""

    per_micro_batch_s: float
    per_step_s: float


def data_traffic(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> DataTraffic:
    """Return the time to reduce gradients and gather weights over the data-parallel ``group``.

    ZeRO-3 gathers weights forward and backward and reduces gradients for every micro-batch, ZeRO-2
    gathers once; ZeRO-1 does both once per step, DDP an all-reduce per step (Rajbhandari et al.,
    2020). Under a pipeline weights stay gathered for all micro-batches of a step. Bytes that
    prefetching hides are left out.
    """
    parameters = workload.parameters / parallelism.model_parallel
    if parallelism.sharding == "ddp":
        return DataTraffic(0.0, all_reduce_s(parameters * software.gradient_bytes, group))
    sent = software.exposed_bytes_share * parameters
    gather = gather_s(sent * WEIGHT_BYTES, group) + _gather_latency_s(
        workload, parallelism, group, software
    )
    reduce = gather_s(sent * software.gradient_bytes, group) + _reduce_latency_s(
        workload, parallelism, group, software
    )
    if parallelism.sharding == "zero1" or parallelism.pipeline > 1:
        return DataTraffic(0.0, gather + reduce)
    gathers = 2 if parallelism.sharding == "zero3" else 1
    return DataTraffic(gathers * gather + reduce, 0.0)


def tensor_traffic_s(workload: Workload, parallelism: Parallelism, group: Group) -> float:
    """Return the seconds of one layer's tensor-parallel communication for one micro-batch.

    Two all-reduces forward and two backward (Shoeybi et al., 2019), or as many pairs of gather and
    reduce-scatter with sequence parallelism; one forward if the blocks run in parallel. The
    forward ones run again if the layer is recomputed, the last of them only if all of it is.
    """
    tokens = parallelism.micro_batch * workload.seq_len / parallelism.context
    forward = 1 if workload.parallel_blocks else 2
    again = {"full": forward, "needed": forward - 1}.get(parallelism.recompute, 0)
    all_reduces = 2 + forward + again
    return all_reduces * all_reduce_s(2 * tokens * workload.hidden, group)


def _gather_latency_s(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> float:
    """Return the latency of the collectives that gather all weights once."""
    if not (software.gathers_matrices and parallelism.sharding == "zero3"):
        return _collectives(workload, parallelism, software) * ring_latency_s(group)
    shares = (matrix / parallelism.tensor for matrix in workload.matrices)
    layers = workload.layers / parallelism.pipeline
    return layers * sum(gather_latency_s(share, group) for share in shares)


def _reduce_latency_s(
    workload: Workload, parallelism: Parallelism, group: Group, software: SoftwareSpec
) -> float:
    """Return the latency of the collectives that reduce all gradients once."""
    collectives = _collectives(workload, parallelism, software)
    if software.reduces_to_owner and parallelism.sharding != "zero3":
        # A bucket with gradients of several owners is sent in one slice per owner.
        collectives += group.ranks
    return collectives * ring_latency_s(group)


def _collectives(workload: Workload, parallelism: Parallelism, software: SoftwareSpec) -> float:
    """Return the number of buckets, or else layers, in one rank's part of the model."""
    if not software.bucket_parameters:
        return workload.layers / parallelism.pipeline
    return math.ceil(workload.parameters / parallelism.model_parallel / software.bucket_parameters)
