"""How long collectives take: bytes over bandwidth plus one latency per step of ring or tree.

Gathers and reduce-scatters run around a ring, in which every other rank is a step, so their latency
grows with the cluster; an all-reduce may run over a tree instead, whose depth grows with the
logarithm of the nodes. NCCL chooses between both in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from baselines.gpu.hardware import GpuClusterSpec

ALIGNED = 8
"""Elements of 16 bit in the 16 bytes that NCCL wants every shard to begin at."""


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: every ``stride``-th GPU of the cluster, so many of them."""

    ranks: int
    cluster: GpuClusterSpec
    stride: int = 1

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one full node."""
        return max(1, self.cluster.gpus_per_node // self.stride)

    @property
    def nodes(self) -> int:
        """Nodes that the group spans."""
        return -(-self.ranks // self.ranks_per_node)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """What every rank of a ring sends and receives per second.

        The rings of several channels leave a node through different NICs, so those of all its
        ranks carry the traffic of one ring.
        """
        nvlink = self.cluster.gpu.nvlink_bandwidth_bytes_per_s
        nics = self.cluster.network.nic_bandwidth_bytes_per_s * self.ranks_per_node
        return nvlink if self.nodes == 1 else min(nvlink, nics)


def gather_s(num_bytes: float, group: Group) -> float:
    """Seconds of an all-gather, or a reduce-scatter, of ``num_bytes`` in all, without latency."""
    return num_bytes * (group.ranks - 1) / group.ranks / group.bandwidth_bytes_per_s


def ring_latency_s(group: Group) -> float:
    """Seconds that the first byte takes around the ring: one step per other rank."""
    between = group.nodes - 1
    inside = group.ranks - 1 - between
    network = group.cluster.network
    return inside * network.nvlink_hop_s + between * network.nic_hop_s


def gather_latency_s(elements: float, group: Group) -> float:
    """The same of a gather of 16-bit ``elements``, longer if its shards are misaligned."""
    aligned = elements % (ALIGNED * group.ranks) == 0
    return ring_latency_s(group) * (1 if aligned else group.cluster.network.misaligned_hops)


def all_reduce_s(num_bytes: float, group: Group) -> float:
    """Seconds of an all-reduce: over a ring or a tree, whichever is faster."""
    transfer = 2 * gather_s(num_bytes, group)
    return transfer + min(2 * ring_latency_s(group), _tree_latency_s(group))


def _tree_latency_s(group: Group) -> float:
    """Up and down a tree over nodes, with a chain inside each node."""
    chain = min(group.ranks, group.ranks_per_node) - 1
    depth = math.log2(group.nodes)
    network = group.cluster.network
    return 2 * (chain * network.nvlink_hop_s + depth * network.tree_hop_s)
