"""One CS system: its wafer, what it sustains, and what it takes in and gives out."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from timing.hardware.defects import DefectSpec
from timing.hardware.fabric import FabricSpec, Wse3Fabric
from timing.hardware.sourced import sourced
from wsc.core.config import Config
from wsc.core.errors import ConfigError
from wsc.core.units import PS_PER_S, PS_PER_US


class WaferSpec(Config):
    """One CS system. The defaults are those of a CS-2; ``Cs3Spec`` holds those of a CS-3.

    Costs take ``fabric`` for whole: a cluster leaves only what ``defects`` spare of it
    (csnode.fabric.region).
    """

    name: Literal["CS-2", "CS-3"] = "CS-2"

    cores: PositiveInt = sourced(850_000, "published", "zhang; white paper")
    clock_hz: PositiveInt = sourced(1_100_000_000, "published", "zhang, citing IEEE Micro 2023")
    flops_per_core_cycle: PositiveInt = sourced(8, "published", "four fp16 multiply-adds; hc 2022")
    fabric: FabricSpec = Field(default_factory=FabricSpec)
    defects: DefectSpec = Field(default_factory=DefectSpec)

    sram_bytes: PositiveInt = sourced(
        850_000 * 48 * 1024, "derived", "48 KiB in each core; the white paper says 40 GB", le=10**18
    )
    io_bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "published", "12 x 100 GbE = 1.2 Tb/s in each direction; hc 2022"
    )

    kernel_efficiency: PositiveFloat = sourced(
        0.616,
        "fitted",
        "T0001 T0003 T0009 T0011 T0017 T0019 T0028 T0034, together with the two below: cycles of "
        "the closed forms (timing.kernels) over the cycles that these runs took",
        le=1,
    )
    attention_efficiency: PositiveFloat = sourced(0.342, "fitted", "as kernel_efficiency", le=1)
    segment_overhead_ps: NonNegativeInt = sourced(
        1_211 * PS_PER_US,
        "fitted",
        "as kernel_efficiency; half of what a layer takes for each micro-batch however small",
    )
    software_speed: PositiveFloat = sourced(
        1.0, "fitted", "1 by definition for the release, not stated, of the rows fitted above"
    )
    programming_ps: NonNegativeInt = sourced(
        110 * PS_PER_S, "fitted", "T0088, logs from 85 to 136 s; loading the wafer's program"
    )

    @model_validator(mode="after")
    def _grid_lies_on_the_wafer(self) -> Self:
        if self.fabric.num_pes > self.cores:
            raise ConfigError(
                f"a {self.name} has fewer cores than its grid has PEs",
                where="system.fabric",
                value=f"{self.fabric.columns} x {self.fabric.rows} PEs",
                rule=f"columns x rows is at most system.cores, {self.cores}",
                remedy="lower system.fabric.columns or rows, or raise system.cores in cluster.yaml",
            )
        return self

    @property
    def peak_flops_per_s(self) -> int:
        """Dense fp16 operations per second, multiply and add counted as two."""
        return self.cores * self.flops_per_core_cycle * self.clock_hz


class Cs3Spec(WaferSpec):
    """The numbers of a CS-3."""

    name: Literal["CS-2", "CS-3"] = "CS-3"

    cores: PositiveInt = sourced(900_000, "published", "arXiv 2503.11698")
    clock_hz: PositiveInt = sourced(
        1_085_000_000, "derived", "125 PFLOP/s with a sparsity factor of 8, over cores x 16"
    )
    flops_per_core_cycle: PositiveInt = sourced(16, "published", "8-wide fp16; hc 2024")
    fabric: Wse3Fabric = Field(default_factory=Wse3Fabric)
    sram_bytes: PositiveInt = sourced(
        900_000 * 48 * 1024,
        "derived",
        "48 KiB in each core; arXiv 2503.11698 says 44 GB",
        le=10**18,
    )
    software_speed: PositiveFloat = sourced(
        1.889,
        "fitted",
        "T0074, release 2.5; above 1 because the vector unit's rates measured with the SDK "
        "(Wse3Fabric) are a third of its width",
    )
    programming_ps: NonNegativeInt = sourced(
        230 * PS_PER_S, "fitted", "T0089, logs from 200 to 245 s; loading the wafer's program"
    )


CS2 = WaferSpec()
CS3 = Cs3Spec()
