"""Specifications of GPUs and GPU clusters, and presets of products with the source of each number.

A specification has no default of any product: a preset states every number, or names the preset
that it is a variant of. Peaks are dense. Sources in short: "data sheet" is NVIDIA's for the
product, "NCCL" the constants of the library's tuning model (``src/graph/tuning.cc``), "Dao" is
FlashAttention-2 (arXiv 2307.08691), "Shah" is FlashAttention-3 (arXiv 2407.08608).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from waferstream.core.config import Config
from waferstream.machine.hardware.sourced import Preset, Sourced, preset

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


class NetworkSpec(Config):
    """The links of a cluster: NICs between nodes, and latencies of NVLink and network."""

    nic_bandwidth_bytes_per_s: PositiveFloat
    """Per GPU and direction."""
    nvlink_hop_s: NonNegativeFloat
    """One step of a ring over NVLink."""
    nic_hop_s: NonNegativeFloat
    """One step of a ring over the network."""
    tree_hop_s: NonNegativeFloat
    """One step of a tree over the network."""
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


class GpuClusterSpec(Config):
    """GPUs in nodes: NVLink inside a node, one NIC per GPU between nodes."""

    gpu: GpuSpec
    gpus_per_node: PositiveInt
    network: NetworkSpec
    host: HostSpec


_USABLE = Sourced(
    0.9,
    "assumed",
    "share of HBM for tensors; the rest is context, buffers and fragmentation",
)
_HBM = Sourced(0.85, "assumed", "share of the HBM bandwidth that streaming kernels sustain")
_MISALIGNED = Sourced(
    0.316,
    "fitted",
    "G0277 G0281 G0284 G0334 G0338 (heads of 115 elements): speed of matrix products with an"
    " extent that is no multiple of 8, relative to others",
)

_A100_80 = preset(
    GpuSpec,
    "An A100 with 80 GB",
    name="A100-80GB",
    flops_16bit_per_s=Sourced(312e12, "published", "data sheet, bf16 and fp16"),
    flops_8bit_per_s=Sourced(
        312e12, "published", "data sheet: no 8-bit floating point, so the 16-bit peak"
    ),
    hbm_bytes=Sourced(80_000_000_000, "published", "data sheet"),
    usable_share=_USABLE,
    hbm_bandwidth_bytes_per_s=Sourced(2.039e12, "published", "data sheet"),
    hbm_share=_HBM,
    nvlink_bandwidth_bytes_per_s=Sourced(
        235e9, "published", "NCCL: most that a ring reaches on compute capability 8.0, of 300e9"
    ),
    matmul_share=Sourced(
        0.774, "fitted", "G0089 G0096 G0146 G0149 G0156 G0159: A100, both sizes of memory"
    ),
    misaligned_share=_MISALIGNED,
    flash_share=Sourced(
        0.6, "published", "Dao: FlashAttention-2 reaches 50 to 73 % of the peak; the middle"
    ),
)
_A100_40 = preset(
    GpuSpec,
    "An A100 with 40 GB",
    variant_of=_A100_80,
    name="A100-40GB",
    hbm_bytes=Sourced(40_000_000_000, "published", "data sheet"),
    hbm_bandwidth_bytes_per_s=Sourced(1.555e12, "published", "data sheet"),
)
_H100 = preset(
    GpuSpec,
    "An H100 SXM at 700 W",
    name="H100",
    flops_16bit_per_s=Sourced(989e12, "published", "data sheet, dense"),
    flops_8bit_per_s=Sourced(1979e12, "published", "data sheet, dense"),
    hbm_bytes=Sourced(80_000_000_000, "published", "data sheet"),
    usable_share=_USABLE,
    hbm_bandwidth_bytes_per_s=Sourced(3.35e12, "published", "data sheet"),
    hbm_share=_HBM,
    nvlink_bandwidth_bytes_per_s=Sourced(
        352e9, "derived", "450e9 of the data sheet at the share that NCCL states for an A100"
    ),
    matmul_share=Sourced(0.651, "fitted", "G0007 G0010 G0030 G0033 G0039: H100 SXM"),
    misaligned_share=_MISALIGNED,
    flash_share=Sourced(
        0.35, "published", "Shah: FlashAttention-2 reaches 35 % of the peak of an H100"
    ),
)
_H100_500W = preset(
    GpuSpec,
    "An H100 with 96 GB HBM2e, limited to 500 W",
    variant_of=_H100,
    name="H100-96GB-500W",
    hbm_bytes=Sourced(96_000_000_000, "published", "source of G0376 to G0399"),
    hbm_bandwidth_bytes_per_s=Sourced(2.4e12, "published", "source of G0376 to G0399"),
    matmul_share=Sourced(0.529, "fitted", "G0376 G0377 G0378: H100 at 500 W"),
)
_H200 = preset(
    GpuSpec,
    "An H200 SXM: the chip of an H100 with more and faster memory",
    variant_of=_H100,
    name="H200",
    hbm_bytes=Sourced(141_000_000_000, "published", "data sheet"),
    hbm_bandwidth_bytes_per_s=Sourced(4.8e12, "published", "data sheet"),
)
_WAFERLLM_A100 = preset(
    GpuSpec,
    "An A100 of the WaferLLM testbed, serving software included; one of 80 GB, since table 6 has"
    " it read 2.1 GB in 1.231 ms, more than one of 40 GB can",
    variant_of=_A100_80,
    name="A100, WaferLLM testbed",
    hbm_share=Sourced(
        0.602, "fitted", "G0443: weights and cache read per decoded token on one GPU"
    ),
    nvlink_bandwidth_bytes_per_s=Sourced(
        19.1e9, "fitted", "G0433: all-reduces of a prompt inside a node; the link is not stated"
    ),
)

_LL128: dict[str, Any] = {
    "nvlink_hop_s": Sourced(
        1.9e-6, "published", "NCCL: a step of a ring over NVLink, protocol LL128"
    ),
    "nic_hop_s": Sourced(
        4.0e-6, "published", "NCCL: a step of a ring over the network, protocol LL128"
    ),
    "tree_hop_s": Sourced(
        8.5e-6, "published", "NCCL: a step of a tree over the network, protocol LL128"
    ),
    "misaligned_hops": Sourced(
        4.89,
        "fitted",
        "G0281 G0284 (a hidden size of 1,840): ring steps that one step of a gather costs if its"
        " shards are no multiple of 16 bytes; NCCL then copies without wide loads (its issues 256"
        " and 413)",
    ),
}
"""Latencies that NCCL has on every network."""

_NETWORK_200G = preset(
    NetworkSpec,
    "A network with 200 Gb/s per GPU",
    nic_bandwidth_bytes_per_s=Sourced(
        25e9,
        "published",
        "200 Gb/s per GPU and direction: 1600 Gb/s per node of 8 in G0078 to G0216",
    ),
    **_LL128,
)
_NETWORK_400G = preset(
    NetworkSpec,
    "A network with 400 Gb/s per GPU",
    nic_bandwidth_bytes_per_s=Sourced(
        50e9, "published", "400 Gb/s per GPU, source of G0376 to G0399; per direction"
    ),
    **_LL128,
)
_NETWORK_50G = preset(
    NetworkSpec,
    "A network with 50 Gb/s per GPU",
    nic_bandwidth_bytes_per_s=Sourced(
        6.25e9,
        "published",
        "links of 100 Gb/s: four for the eight GPUs of a p4d.24xlarge of AWS, two for the four of a"
        " node of Polaris in 2022; per direction",
    ),
    **_LL128,
)
_WAFERLLM_NETWORK = preset(
    NetworkSpec,
    "Latencies and NICs of the WaferLLM testbed, serving software included",
    nic_bandwidth_bytes_per_s=Sourced(
        1.87e9, "fitted", "G0434: all-reduces of a prompt over two nodes, per GPU"
    ),
    nvlink_hop_s=Sourced(2.46e-6, "fitted", "G0444: all-reduces of a token inside a node"),
    tree_hop_s=Sourced(23.5e-6, "fitted", "G0445: all-reduces of a token over two nodes"),
    nic_hop_s=Sourced(23.5e-6, "fitted", "G0445: as a step of a tree"),
    misaligned_hops=_LL128["misaligned_hops"],
)

_HOST = preset(
    HostSpec,
    "A host with two CPUs of 24 cores and PCIe 4.0",
    launch_s=Sourced(
        3.0e-6,
        "published",
        "meta-pytorch/tritonbench, pull request 1017: an empty kernel launched by cuLaunchKernel"
        " alone, measured on a GB200; a framework adds to it, so this is a lower bound",
    ),
    adam_per_core_s=Sourced(
        81e6,
        "derived",
        "ZeRO-Offload (arXiv 2101.06840), table 4: CPU-Adam steps 10e9 parameters in 2.57 s on two"
        " CPUs of 24 cores",
    ),
    pcie_bandwidth_bytes_per_s=Sourced(
        32e9, "published", "data sheet of the A100: PCIe 4.0 with 16 lanes; per direction"
    ),
)

PRESETS: dict[str, Preset[Any]] = {
    "A100_80": _A100_80,
    "A100_40": _A100_40,
    "H100": _H100,
    "H100_500W": _H100_500W,
    "H200": _H200,
    "NETWORK_200G": _NETWORK_200G,
    "NETWORK_400G": _NETWORK_400G,
    "NETWORK_50G": _NETWORK_50G,
    "HOST": _HOST,
    "WAFERLLM_A100": _WAFERLLM_A100,
    "WAFERLLM_NETWORK": _WAFERLLM_NETWORK,
}
"""Every preset by the name of its constant, for the list of sources."""

A100_80 = _A100_80.spec
A100_40 = _A100_40.spec
H100 = _H100.spec
H100_500W = _H100_500W.spec
H200 = _H200.spec
NETWORK_200G = _NETWORK_200G.spec
NETWORK_400G = _NETWORK_400G.spec
NETWORK_50G = _NETWORK_50G.spec
HOST = _HOST.spec

DGX_A100 = GpuClusterSpec(gpu=A100_80, gpus_per_node=8, network=NETWORK_200G, host=HOST)
DGX_H100 = GpuClusterSpec(gpu=H100, gpus_per_node=8, network=NETWORK_400G, host=HOST)
WAFERLLM_TESTBED = GpuClusterSpec(
    gpu=_WAFERLLM_A100.spec, gpus_per_node=8, network=_WAFERLLM_NETWORK.spec, host=HOST
)
