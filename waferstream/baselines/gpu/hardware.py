"""Specifications of GPUs, networks, hosts and clusters.

A specification has no default of any product: a preset states every number, or names the preset
that it is a variant of (``chips``, ``clusters``). Peaks are dense.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from waferstream.core.config import Config

Share = Annotated[PositiveFloat, Field(le=1)]
"""A share of a peak: above 0, at most 1."""


class GpuSpec(Config):
    """One GPU: its peaks, and the shares of them that training sustains."""

    name: str
    flops_16bit_per_s: PositiveFloat
    flops_8bit_per_s: PositiveFloat
    """Peak of 8-bit floating point; the 16-bit peak where a chip has none."""
    hbm_bytes: PositiveInt
    usable_share: Share
    """Share of ``hbm_bytes`` that tensors may use."""
    hbm_bandwidth_bytes_per_s: PositiveFloat
    hbm_share: Share
    """Share of the HBM bandwidth that streaming kernels sustain."""
    nvlink_bandwidth_bytes_per_s: PositiveFloat
    matmul_share: Share
    """Share of the 16-bit peak that large matrix products sustain inside a training step. It
    depends on the chip and its power limit, not on the model."""
    misaligned_share: Share
    """Speed of matrix products with an extent that is no multiple of 8, relative to others."""
    flash_share: Share
    """Share of the 16-bit peak that FlashAttention-2 reaches."""
    kernel_s: NonNegativeFloat
    """Time of one small kernel beside its traffic: start, drain, and the gap to the next."""


class NetworkSpec(Config):
    """The links of a cluster: NICs between nodes, and latencies of NVLink and network.

    Small messages have latencies of their own, since NCCL sends them by another protocol.
    """

    nic_bandwidth_bytes_per_s: PositiveFloat
    """Per GPU and direction."""
    nvlink_hop_s: NonNegativeFloat
    """One step of a ring over NVLink."""
    nic_hop_s: NonNegativeFloat
    """One step of a ring over the network."""
    tree_hop_s: NonNegativeFloat
    """One step of a tree over the network."""
    one_shot: bool
    """Whether serving software sums small messages of a node in one shot: every GPU reads those of
    all others, which takes two steps, there and back. NVLink allows it."""
    small_nvlink_hop_s: NonNegativeFloat
    small_nic_hop_s: NonNegativeFloat
    small_tree_hop_s: NonNegativeFloat
    misaligned_hops: Annotated[PositiveFloat, Field(ge=1)]
    """Ring steps that one step of a gather costs if its shards are no multiple of 16 bytes."""


class HostSpec(Config):
    """The CPUs beside the GPUs: they launch kernels, and may run the optimizer."""

    launch_s: NonNegativeFloat
    """Time in which one thread launches one kernel."""
    adam_per_core_s: PositiveFloat
    """Parameters that one core updates per second."""
    pcie_bandwidth_bytes_per_s: PositiveFloat
    """Per direction."""
    prompt_s: NonNegativeFloat
    """Time beside its kernels that a prompt takes on several GPUs: serving software."""


class GpuClusterSpec(Config):
    """GPUs in nodes: NVLink inside a node, one NIC per GPU between nodes."""

    gpu: GpuSpec
    gpus_per_node: PositiveInt
    network: NetworkSpec
    host: HostSpec
