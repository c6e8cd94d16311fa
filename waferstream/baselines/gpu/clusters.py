"""Presets of networks, hosts and clusters, with the source of each number.

"NCCL" is the library's tuning model (``src/graph/tuning.cc``).
"""

from __future__ import annotations

from typing import Any

from waferstream.baselines.gpu.chips import A100_80, B200, H100, H200, WAFERLLM_A100
from waferstream.baselines.gpu.hardware import GpuClusterSpec, HostSpec, NetworkSpec
from waferstream.machine.hardware.sourced import Preset, Sourced, preset

_LATENCIES: dict[str, Any] = {
    "nvlink_hop_s": Sourced(
        1.9e-6, "published", "NCCL: a step of a ring over NVLink, protocol LL128"
    ),
    "nic_hop_s": Sourced(
        4.0e-6, "published", "NCCL: a step of a ring over the network, protocol LL128"
    ),
    "tree_hop_s": Sourced(
        8.5e-6, "published", "NCCL: a step of a tree over the network, protocol LL128"
    ),
    "one_shot": True,
    "small_nvlink_hop_s": Sourced(
        0.6e-6, "published", "NCCL: a step of a ring over NVLink, protocol LL"
    ),
    "small_nic_hop_s": Sourced(
        2.7e-6, "published", "NCCL: a step of a ring over the network, protocol LL"
    ),
    "small_tree_hop_s": Sourced(
        5.0e-6, "published", "NCCL: a step of a tree over the network, protocol LL"
    ),
    "misaligned_hops": Sourced(
        4.89,
        "assumed",
        "meets G0281 G0284 (a hidden size of 1,840), rows of one model: ring steps that one step of"
        " a gather costs if its shards are no multiple of 16 bytes; NCCL then copies without wide"
        " loads (its issues 256 and 413)",
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
    **_LATENCIES,
)
_NETWORK_400G = preset(
    NetworkSpec,
    "A network with 400 Gb/s per GPU",
    nic_bandwidth_bytes_per_s=Sourced(
        50e9, "published", "400 Gb/s per GPU, source of G0376 to G0399; per direction"
    ),
    **_LATENCIES,
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
    **_LATENCIES,
)
_TESTBED_HOP = Sourced(
    18e-6, "assumed", "meets G0445: one step between two nodes for a decoded token of one model"
)
_WAFERLLM_NETWORK = preset(
    NetworkSpec,
    "Links of the WaferLLM testbed: PCIe inside a node, one NIC for its eight GPUs",
    **_LATENCIES
    | {
        "nic_bandwidth_bytes_per_s": Sourced(
            3.125e9, "assumed", "a NIC of 200 Gb/s for eight GPUs; no link of it is stated"
        ),
        "nvlink_hop_s": Sourced(
            2.5e-6, "published", "NCCL: a step of a ring over PCIe, protocol LL128"
        ),
        "one_shot": False,
        "small_nvlink_hop_s": Sourced(
            1.0e-6, "published", "NCCL: a step of a ring over PCIe, protocol LL"
        ),
        "small_nic_hop_s": _TESTBED_HOP,
        "small_tree_hop_s": _TESTBED_HOP,
    },
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
    prompt_s=Sourced(0, "assumed", "no source has a prompt that waits for software"),
)
_WAFERLLM_HOST = preset(
    HostSpec,
    "A host of the WaferLLM testbed",
    variant_of=_HOST,
    prompt_s=Sourced(
        0.09, "assumed", "between what G0433 and G0434, of one model, take beside their kernels"
    ),
)

PRESETS: dict[str, Preset[Any]] = {
    "NETWORK_200G": _NETWORK_200G,
    "NETWORK_400G": _NETWORK_400G,
    "NETWORK_50G": _NETWORK_50G,
    "HOST": _HOST,
    "WAFERLLM_NETWORK": _WAFERLLM_NETWORK,
    "WAFERLLM_HOST": _WAFERLLM_HOST,
}
"""Every preset by the name of its constant, for the list of sources."""

NETWORK_200G = _NETWORK_200G.spec
NETWORK_400G = _NETWORK_400G.spec
NETWORK_50G = _NETWORK_50G.spec
HOST = _HOST.spec

DGX_A100 = GpuClusterSpec(gpu=A100_80, gpus_per_node=8, network=NETWORK_200G, host=HOST)
DGX_H100 = GpuClusterSpec(gpu=H100, gpus_per_node=8, network=NETWORK_400G, host=HOST)
DGX_H200 = GpuClusterSpec(gpu=H200, gpus_per_node=8, network=NETWORK_400G, host=HOST)
DGX_B200 = GpuClusterSpec(gpu=B200, gpus_per_node=8, network=NETWORK_400G, host=HOST)
WAFERLLM_TESTBED = GpuClusterSpec(
    gpu=WAFERLLM_A100,
    gpus_per_node=8,
    network=_WAFERLLM_NETWORK.spec,
    host=_WAFERLLM_HOST.spec,
)
