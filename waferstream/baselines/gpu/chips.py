"""Presets of GPUs, with the source of each number.

Sources in short: "data sheet" is NVIDIA's for the product, "NCCL" the constants of the library's
tuning model (``src/graph/tuning.cc``), "Dao" is FlashAttention-2 (arXiv 2307.08691), "Shah" is
FlashAttention-3 (arXiv 2407.08608), "Zadouri" is FlashAttention-4.
"""

from __future__ import annotations

from waferstream.baselines.gpu.hardware import GpuSpec
from waferstream.machine.hardware.sourced import Preset, Sourced, preset

_USABLE = Sourced(
    0.9,
    "assumed",
    "share of HBM for tensors; the rest is context, buffers and fragmentation",
)
_HBM = Sourced(0.85, "assumed", "share of the HBM bandwidth that streaming kernels sustain")
_MISALIGNED = Sourced(
    0.316,
    "assumed",
    "meets G0277 G0334 (heads of 115 elements), rows of one model: speed of matrix products with an"
    " extent that is no multiple of 8, relative to others",
)

_KERNEL = Sourced(
    5.92e-6,
    "fitted",
    "G0443 G0444 G0445 G0561 G0562 G0563 G0564 G0581 G0582 G0583 G0584 G0585: decoding of LLaMA 7B"
    " and 8B with three stacks; time of one small kernel beside its traffic",
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
    kernel_s=_KERNEL,
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
    matmul_share=Sourced(0.636, "fitted", "G0007 G0010 G0030 G0033 G0039: H100 SXM"),
    misaligned_share=_MISALIGNED,
    flash_share=Sourced(
        0.35, "published", "Shah: FlashAttention-2 reaches 35 % of the peak of an H100"
    ),
    kernel_s=_KERNEL,
)
_H100_500W = preset(
    GpuSpec,
    "An H100 with 96 GB HBM2e, limited to 500 W",
    variant_of=_H100,
    name="H100-96GB-500W",
    hbm_bytes=Sourced(96_000_000_000, "published", "source of G0376 to G0399"),
    hbm_bandwidth_bytes_per_s=Sourced(2.4e12, "published", "source of G0376 to G0399"),
    matmul_share=Sourced(
        0.529, "assumed", "meets G0377; its rows with a known effect of the cap are of one model"
    ),
)
_H200 = preset(
    GpuSpec,
    "An H200 SXM: the chip of an H100 with more and faster memory",
    variant_of=_H100,
    name="H200",
    hbm_bytes=Sourced(141_000_000_000, "published", "data sheet"),
    hbm_bandwidth_bytes_per_s=Sourced(4.8e12, "published", "data sheet"),
)
_B200 = preset(
    GpuSpec,
    "A B200 of a DGX, at 1000 W",
    variant_of=_H100,
    name="B200",
    flops_16bit_per_s=Sourced(2250e12, "published", "data sheet, dense"),
    flops_8bit_per_s=Sourced(4500e12, "published", "data sheet, dense"),
    hbm_bytes=Sourced(180_000_000_000, "published", "data sheet of the DGX: 1,440 GB in eight"),
    hbm_bandwidth_bytes_per_s=Sourced(8e12, "published", "data sheet of the DGX: 64 TB/s of eight"),
    nvlink_bandwidth_bytes_per_s=Sourced(
        720e9, "published", "NCCL: what it takes a Blackwell to reach, of 900e9"
    ),
    matmul_share=Sourced(0.679, "fitted", "G0513 G0514 G0518: NeMo 25.02 on DGX B200"),
    flash_share=Sourced(
        0.172,
        "derived",
        "Zadouri: exponentials and shared memory of an SM are those of an H100, whose share of its"
        " peak it keeps with 148 SMs for 132",
    ),
)
_WAFERLLM_A100 = preset(
    GpuSpec,
    "An A100 of the WaferLLM testbed; one of 80 GB, since table 6 has it read 2.1 GB in 1.231 ms,"
    " more than one of 40 GB can",
    variant_of=_A100_80,
    name="A100, WaferLLM testbed",
    nvlink_bandwidth_bytes_per_s=Sourced(
        32e9,
        "assumed",
        "PCIe 4.0 with 16 lanes; the link is not stated, and G0433 excludes NVLink",
    ),
)

PRESETS: dict[str, Preset[GpuSpec]] = {
    "A100_80": _A100_80,
    "A100_40": _A100_40,
    "H100": _H100,
    "H100_500W": _H100_500W,
    "H200": _H200,
    "B200": _B200,
    "WAFERLLM_A100": _WAFERLLM_A100,
}
"""Every preset by the name of its constant, for the list of sources."""

A100_80 = _A100_80.spec
A100_40 = _A100_40.spec
H100 = _H100.spec
H100_500W = _H100_500W.spec
H200 = _H200.spec
B200 = _B200.spec
WAFERLLM_A100 = _WAFERLLM_A100.spec
