"""One CS system: its wafer, what it sustains, and what it takes in and gives out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from wsc.core.config import Config
from wsc.core.units import PS_PER_S, PS_PER_US
from wsc.timing.hardware.fabric import FabricSpec, Wse3Fabric
from wsc.timing.hardware.sourced import sourced


class WaferSpec(Config):
    """One CS system. The defaults are those of a CS-2; ``Cs3Spec`` holds those of a CS-3."""

    name: Literal["CS-2", "CS-3"] = "CS-2"

    cores: PositiveInt = sourced(850_000, "published", "zhang; white paper")
    clock_hz: PositiveInt = sourced(1_100_000_000, "published", "zhang, citing IEEE Micro 2023")
    flops_per_core_cycle: PositiveInt = sourced(8, "published", "four fp16 multiply-adds; hc 2022")
    fabric: FabricSpec = Field(default_factory=FabricSpec)

    sram_bytes: PositiveInt = sourced(40_000_000_000, "published", "white paper")
    sram_bandwidth_bytes_per_s: PositiveInt = sourced(
        20_000_000_000_000_000, "published", "white paper"
    )
    io_bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "published", "12 x 100 GbE = 1.2 Tb/s in each direction; hc 2022"
    )

    matmul_utilisation: PositiveFloat = sourced(
        0.251,
        "fitted",
        "geometric mean over T0001 T0003 T0009 T0011 T0017 T0019, micro-batches of 128 sequences, "
        "(6 N + 12 L H S) S operations per sequence, less the fixed time per layer",
        le=1,
    )
    segment_overhead_ps: NonNegativeInt = sourced(
        2_038 * PS_PER_US,
        "fitted",
        "T0028 and T0034 (BERT-large, 24 layers): the line through both meets batch 0 at 97.8 ms, "
        "4.08 ms per layer; half of it forward, half backward",
    )
    programming_ps: NonNegativeInt = sourced(
        110 * PS_PER_S, "fitted", "T0088, logs from 85 to 136 s; loading the wafer's program"
    )

    @property
    def peak_flops_per_s(self) -> int:
        """Dense fp16 operations per second, multiply and add counted as two."""
        return self.cores * self.flops_per_core_cycle * self.clock_hz

    @property
    def kernel_overhead_ps(self) -> int:
        """The start of a kernel: one control wavelet across the fabric, corner to corner."""
        cycles = (self.fabric.columns + self.fabric.rows) * self.fabric.hop_cycles
        return cycles * PS_PER_S // self.clock_hz


class Cs3Spec(WaferSpec):
    """The numbers of a CS-3."""

    name: Literal["CS-2", "CS-3"] = "CS-3"

    cores: PositiveInt = sourced(900_000, "published", "arXiv 2503.11698")
    clock_hz: PositiveInt = sourced(
        1_085_000_000, "derived", "125 PFLOP/s with a sparsity factor of 8, over cores x 16"
    )
    flops_per_core_cycle: PositiveInt = sourced(16, "published", "8-wide fp16; hc 2024")
    fabric: Wse3Fabric = Field(default_factory=Wse3Fabric)
    sram_bytes: PositiveInt = sourced(44_000_000_000, "published", "arXiv 2503.11698")
    sram_bandwidth_bytes_per_s: PositiveInt = sourced(
        21_000_000_000_000_000, "published", "arXiv 2503.11698"
    )
    matmul_utilisation: PositiveFloat = sourced(
        0.251, "assumed", "as CS-2; the ratio of peaks, 2.1, lies in the published 1.7 to 2.3", le=1
    )
    segment_overhead_ps: NonNegativeInt = sourced(2_038 * PS_PER_US, "assumed", "as CS-2")
    programming_ps: NonNegativeInt = sourced(
        230 * PS_PER_S, "fitted", "T0089, logs from 200 to 245 s; loading the wafer's program"
    )


CS2 = WaferSpec()
CS3 = Cs3Spec()
