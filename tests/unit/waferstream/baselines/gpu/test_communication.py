"""Collectives over rings and trees, and the traffic of each ZeRO stage."""

from dataclasses import replace

import pytest

from waferstream.baselines.gpu.chips import A100_80
from waferstream.baselines.gpu.clusters import HOST
from waferstream.baselines.gpu.communication import (
    Group,
    all_reduce_s,
    data_traffic,
    gather_latency_s,
    gather_s,
    ring_latency_s,
    tensor_traffic_s,
)
from waferstream.baselines.gpu.hardware import GpuClusterSpec, NetworkSpec
from waferstream.baselines.gpu.software import DEEPSPEED, FSDP
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Sharding, Workload

NETWORK = NetworkSpec(
    nic_bandwidth_bytes_per_s=10,
    nvlink_hop_s=1,
    nic_hop_s=10,
    tree_hop_s=2,
    one_shot=False,
    small_nvlink_hop_s=1,
    small_nic_hop_s=10,
    small_tree_hop_s=2,
    misaligned_hops=3,
)
CLUSTER = GpuClusterSpec(
    gpu=A100_80.model_copy(update={"nvlink_bandwidth_bytes_per_s": 100}),
    gpus_per_node=4,
    network=NETWORK,
    host=HOST,
)
TWO_NODES = Group(8, CLUSTER)
MODEL = Workload(parameters=512 + 2 * 5000, hidden=16, layers=2, heads=2, seq_len=4, vocab=16)


def test_group_counts_nodes_by_its_stride() -> None:
    """Four GPUs per node: two ranks per node at stride 2, one at strides 4 and 8."""
    spans = [Group(8, CLUSTER, stride) for stride in (1, 2, 4, 8)]
    assert [(group.ranks_per_node, group.nodes) for group in spans] == [
        (4, 2),
        (2, 4),
        (1, 8),
        (1, 8),
    ]
    assert Group(9, CLUSTER).nodes == 3


def test_group_bandwidth_is_nvlink_or_the_nics_of_its_ranks() -> None:
    """Never more than the bandwidth of NVLink."""
    assert Group(4, CLUSTER).bandwidth_bytes_per_s == 100
    assert [Group(8, CLUSTER, stride).bandwidth_bytes_per_s for stride in (1, 2, 4)] == [40, 20, 10]
    fast = NETWORK.model_copy(update={"nic_bandwidth_bytes_per_s": 90})
    assert Group(8, CLUSTER.model_copy(update={"network": fast})).bandwidth_bytes_per_s == 100


def test_gather_s_sends_all_but_the_own_share() -> None:
    """Of eight ranks in two nodes, one step goes between nodes and six inside."""
    assert gather_s(800, TWO_NODES) == 800 * 7 / 8 / 40
    assert ring_latency_s(TWO_NODES) == 6 * 1 + 1 * 10
    assert gather_latency_s(64, TWO_NODES) == 16
    assert gather_latency_s(65, TWO_NODES) == gather_latency_s(8, TWO_NODES) == 3 * 16


def test_all_reduce_s_is_the_faster_of_ring_and_tree() -> None:
    """Up and down: a chain of three inside a node and one level over two nodes, or twice around."""
    assert all_reduce_s(0, TWO_NODES) == 2 * (3 * 1 + 1 * 2)
    assert all_reduce_s(0, Group(2, CLUSTER)) == 2 * 1
    far = NETWORK.model_copy(update={"tree_hop_s": 100, "small_tree_hop_s": 100})
    ring = Group(8, CLUSTER.model_copy(update={"network": far}))
    assert all_reduce_s(800, ring) == 2 * 800 * 7 / 8 / 40 + 2 * 16


def test_all_reduce_s_of_small_messages_halves_bandwidth_for_shorter_steps() -> None:
    """With steps of nothing, up to where the transfer takes as long as the steps of the other."""
    quick = NETWORK.model_copy(update={"small_nvlink_hop_s": 0, "small_tree_hop_s": 0})
    group = Group(8, CLUSTER.model_copy(update={"network": quick}))
    assert all_reduce_s(80, group) == 2 * (2 * 80 * 7 / 8 / 40)
    assert all_reduce_s(800, group) == all_reduce_s(800, TWO_NODES)


@pytest.mark.parametrize(
    ("sharding", "per_micro_batch", "per_step"),
    [("zero1", 0, 2), ("zero2", 2, 0), ("zero3", 3, 0)],
)
def test_data_traffic_of_each_zero_stage(
    sharding: Sharding, per_micro_batch: int, per_step: int
) -> None:
    """Both 16-bit weights and gradients, one collective to a layer; ZeRO-3 gathers them twice."""
    one = gather_s(2 * MODEL.parameters, TWO_NODES) + 2 * ring_latency_s(TWO_NODES)
    traffic = data_traffic(MODEL, Parallelism(sharding), TWO_NODES, FSDP)
    assert traffic == pytest.approx((per_micro_batch * one, per_step * one))


def test_data_traffic_under_a_pipeline_gathers_once_per_step() -> None:
    """Once a step, half of the parameters and of the layers."""
    one = gather_s(MODEL.parameters, TWO_NODES) + ring_latency_s(TWO_NODES)
    traffic = data_traffic(MODEL, Parallelism("zero3", pipeline=2), TWO_NODES, FSDP)
    assert traffic == pytest.approx((0, 2 * one))


def test_data_traffic_of_ddp_is_one_all_reduce() -> None:
    """One all-reduce per step; a single rank sends nothing."""
    whole = all_reduce_s(2 * MODEL.parameters, TWO_NODES)
    assert data_traffic(MODEL, Parallelism("ddp"), TWO_NODES, FSDP) == (0, whole)
    assert data_traffic(MODEL, Parallelism("zero3"), Group(1, CLUSTER), FSDP) == (0, 0)


def test_deepspeed_gathers_matrices_and_reduces_buckets() -> None:
    """Of 768, 256, 1024 and 1024 elements, all aligned; halved by two tensor-parallel ranks.

    On 64 ranks, shards of whole 16 bytes take multiples of 512 elements. 10,512 parameters are
    three buckets of 4,096, or two of half the model.
    """
    software = DEEPSPEED.model_copy(update={"bucket_parameters": 4096})
    assert MODEL.matrices == (768, 256, 1024, 1024)

    def latency_s(tensor: int, ranks: int) -> float:
        group = Group(ranks, CLUSTER)
        split = Parallelism("zero3", tensor=tensor)
        sent = 3 * gather_s(2 * MODEL.parameters / tensor, group) * DEEPSPEED.exposed_bytes_share
        traffic = data_traffic(MODEL, split, group, software)
        return (traffic.per_micro_batch_s - sent) / ring_latency_s(group)

    assert latency_s(1, 8) == pytest.approx(2 * (2 * 4) + 3)
    assert latency_s(1, 64) == pytest.approx(2 * (2 * (3 + 3 + 1 + 1)) + 3)
    assert latency_s(2, 64) == pytest.approx(2 * (2 * (3 + 3 + 1 + 1)) + 2)
    assert latency_s(4, 64) == pytest.approx(2 * (2 * (3 + 3 + 3 + 3)) + 1)


def test_bytes_are_hidden_but_no_step_of_a_collective() -> None:
    """A quarter of the bytes is exposed, and both collectives of each layer."""
    software = FSDP.model_copy(update={"exposed_bytes_share": 0.25})
    sent = 2 * gather_s(2 * MODEL.parameters, TWO_NODES)
    traffic = data_traffic(MODEL, Parallelism("zero2"), TWO_NODES, software)
    latency = 2 * 2 * ring_latency_s(TWO_NODES)
    assert traffic.per_micro_batch_s == pytest.approx(sent / 4 + latency)


def test_reduces_to_owner_adds_one_collective_per_rank() -> None:
    """Three buckets to gather; to reduce, three and a slice for each of eight owners."""
    software = DEEPSPEED.model_copy(update={"bucket_parameters": 4096})
    sent = 2 * gather_s(2 * MODEL.parameters, TWO_NODES) * DEEPSPEED.exposed_bytes_share
    traffic = data_traffic(MODEL, Parallelism("zero2"), TWO_NODES, software)
    assert traffic.per_micro_batch_s == pytest.approx(
        sent + (3 + 3 + 8) * ring_latency_s(TWO_NODES)
    )


@pytest.mark.parametrize(
    ("recompute", "parallel_blocks", "times"),
    [
        ("none", False, 4),
        ("needed", False, 5),
        ("full", False, 6),
        ("none", True, 3),
        ("needed", True, 3),
        ("full", True, 4),
    ],
)
def test_tensor_traffic_s_counts_all_reduces_of_a_layer(
    recompute: Recompute, parallel_blocks: bool, times: int
) -> None:
    """Three sequences of four tokens of 16 elements, two bytes each."""
    workload = replace(MODEL, parallel_blocks=parallel_blocks)
    split = Parallelism(tensor=8, micro_batch=3, recompute=recompute)
    one = all_reduce_s(2 * 12 * 16, TWO_NODES)
    assert tensor_traffic_s(workload, split, TWO_NODES) == pytest.approx(times * one)
    assert tensor_traffic_s(workload, split, Group(1, CLUSTER)) == 0
    half = all_reduce_s(12 * 16, TWO_NODES)
    parts = replace(split, context=2)
    assert tensor_traffic_s(workload, parts, TWO_NODES) == pytest.approx(times * half)
