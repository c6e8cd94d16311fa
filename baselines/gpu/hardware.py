"""GPUs and their clusters, every number with its source.

Peaks are dense. ``matmul_share`` is what large 16-bit matrix products sustain of the peak inside a
training step; it belongs to the chip and its power limit, not to a model. Sources in short:
"data sheet" is NVIDIA's for the product, "NCCL" the constants of the library's tuning model
(``src/graph/tuning.cc``), "Dao" is FlashAttention-2 (arXiv 2307.08691), "Shah" is FlashAttention-3
(arXiv 2407.08608).
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from timing.hardware.sourced import sourced
from wsc.core.config import Config
from wsc.core.errors import ConfigError, did_you_mean


class GpuSpec(Config):
    """An A100 with 80 GB."""

    name: str = "A100-80GB"
    flops_16bit_per_s: PositiveFloat = sourced(312e12, "published", "data sheet, bf16 and fp16")
    flops_8bit_per_s: PositiveFloat = sourced(
        312e12, "published", "data sheet: no 8-bit floating point, so the 16-bit peak"
    )
    hbm_bytes: PositiveInt = sourced(80_000_000_000, "published", "data sheet")
    usable_share: PositiveFloat = sourced(
        0.9,
        "assumed",
        "of that memory; the rest goes to the context, to buffers and to fragmentation",
        le=1,
    )
    hbm_bandwidth_bytes_per_s: PositiveFloat = sourced(2.039e12, "published", "data sheet")
    hbm_share: PositiveFloat = sourced(
        0.85, "assumed", "of the HBM bandwidth that streaming kernels sustain", le=1
    )
    nvlink_bandwidth_bytes_per_s: PositiveFloat = sourced(
        235e9, "published", "NCCL: most that a ring reaches on compute capability 8.0, of 300e9"
    )
    matmul_share: PositiveFloat = sourced(
        0.774, "fitted", "G0089 G0096 G0146 G0149 G0156 G0159: A100, both sizes of memory", le=1
    )
    misaligned_share: PositiveFloat = sourced(
        0.316,
        "fitted",
        "G0277 G0281 G0284 G0334 G0338 (heads of 115 elements): speed of matrix products with an"
        " extent that is no multiple of 8, against others",
        le=1,
    )
    flash_share: PositiveFloat = sourced(
        0.6, "published", "Dao: FlashAttention-2 reaches 50 to 73 % of the peak; the middle", le=1
    )


class SmallA100(GpuSpec):
    """An A100 with 40 GB."""

    name: str = "A100-40GB"
    hbm_bytes: PositiveInt = sourced(40_000_000_000, "published", "data sheet")
    hbm_bandwidth_bytes_per_s: PositiveFloat = sourced(1.555e12, "published", "data sheet")


class H100Sxm(GpuSpec):
    """An H100 SXM at 700 W."""

    name: str = "H100"
    flops_16bit_per_s: PositiveFloat = sourced(989e12, "published", "data sheet, dense")
    flops_8bit_per_s: PositiveFloat = sourced(1979e12, "published", "data sheet, dense")
    hbm_bandwidth_bytes_per_s: PositiveFloat = sourced(3.35e12, "published", "data sheet")
    nvlink_bandwidth_bytes_per_s: PositiveFloat = sourced(
        352e9, "derived", "450e9 of the data sheet at the share that NCCL states for an A100"
    )
    matmul_share: PositiveFloat = sourced(
        0.651, "fitted", "G0007 G0010 G0030 G0033 G0039: H100 SXM", le=1
    )
    flash_share: PositiveFloat = sourced(
        0.35, "published", "Shah: FlashAttention-2 reaches 35 % of the peak of an H100", le=1
    )


class H100Capped(H100Sxm):
    """An H100 with 96 GB HBM2e, held to 500 W."""

    name: str = "H100-96GB-500W"
    hbm_bytes: PositiveInt = sourced(96_000_000_000, "published", "source of G0376 to G0399")
    hbm_bandwidth_bytes_per_s: PositiveFloat = sourced(
        2.4e12, "published", "source of G0376 to G0399"
    )
    matmul_share: PositiveFloat = sourced(0.529, "fitted", "G0376 G0377 G0378: H100 at 500 W", le=1)


class H200Sxm(H100Sxm):
    """An H200 SXM: the chip of an H100 with more and faster memory."""

    name: str = "H200"
    hbm_bytes: PositiveInt = sourced(141_000_000_000, "published", "data sheet")
    hbm_bandwidth_bytes_per_s: PositiveFloat = sourced(4.8e12, "published", "data sheet")


class NetworkSpec(Config):
    """What joins the GPUs of a cluster, beside NVLink."""

    nic_bandwidth_bytes_per_s: PositiveFloat = sourced(
        25e9, "published", "200 Gb/s per GPU: 1600 Gb/s per node of 8 in G0078 to G0216; per way"
    )
    nvlink_hop_s: NonNegativeFloat = sourced(
        1.9e-6, "published", "NCCL: a step of a ring over NVLink, protocol LL128"
    )
    nic_hop_s: NonNegativeFloat = sourced(
        4.0e-6, "published", "NCCL: a step of a ring over the network, protocol LL128"
    )
    tree_hop_s: NonNegativeFloat = sourced(
        8.5e-6, "published", "NCCL: a step of a tree over the network, protocol LL128"
    )
    misaligned_hops: PositiveFloat = sourced(
        4.89,
        "fitted",
        "G0281 G0284 (a hidden size of 1,840): steps that one of a gather is worth whose shards are"
        " no multiple of 16 bytes; NCCL then copies without wide loads (its issues 256 and 413)",
        ge=1,
    )


class FastNetwork(NetworkSpec):
    """A network with 400 Gb/s per GPU."""

    nic_bandwidth_bytes_per_s: PositiveFloat = sourced(
        50e9, "published", "400 Gb/s per GPU, source of G0376 to G0399; per way"
    )


class SlowNetwork(NetworkSpec):
    """A network with 50 Gb/s per GPU."""

    nic_bandwidth_bytes_per_s: PositiveFloat = sourced(
        6.25e9,
        "published",
        "links of 100 Gb/s: four for the eight GPUs of a p4d.24xlarge of AWS, two for the four of a"
        " node of Polaris in 2022; per way",
    )


class HostSpec(Config):
    """What the CPUs beside the GPUs give to an optimizer whose state lies in their memory."""

    adam_per_core_s: PositiveFloat = sourced(
        81e6,
        "derived",
        "ZeRO-Offload (arXiv 2101.06840), table 4: CPU-Adam steps 10e9 parameters in 2.57 s on two"
        " CPUs of 24 cores",
    )
    pcie_bandwidth_bytes_per_s: PositiveFloat = sourced(
        32e9, "published", "data sheet of the A100: PCIe 4.0 with 16 lanes; per way"
    )


_KINDS: tuple[type[GpuSpec], ...] = (GpuSpec, SmallA100, H100Sxm, H100Capped, H200Sxm)


class GpuClusterSpec(Config):
    """GPUs in nodes: NVLink inside a node, one NIC per GPU between nodes.

    ``gpu`` is the name of a GPU, or a mapping that changes single numbers of the one that its
    ``name`` names; an A100 with 80 GB unless told otherwise.
    """

    gpu: GpuSpec = Field(default_factory=GpuSpec)
    gpus_per_node: PositiveInt = 8
    network: NetworkSpec = Field(default_factory=NetworkSpec)
    host: HostSpec = Field(default_factory=HostSpec)

    @field_validator("gpu", mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping):
            kinds = {str(kind.model_fields["name"].default): kind for kind in _KINDS}
            name = str(value.get("name", next(iter(kinds))))
            if name not in kinds:
                raise ConfigError(
                    "unknown GPU",
                    where="gpu",
                    value=name,
                    rule=f"one of {', '.join(kinds)}",
                    remedy=did_you_mean(name, kinds),
                )
            return kinds[name].model_validate(value)
        return value


A100_40 = SmallA100()
A100_80 = GpuSpec()
H100 = H100Sxm()
H100_500W = H100Capped()
H200 = H200Sxm()

DGX_A100 = GpuClusterSpec()
DGX_H100 = GpuClusterSpec(gpu=H100, network=FastNetwork())
