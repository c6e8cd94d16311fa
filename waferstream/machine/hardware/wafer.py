"""One CS system: its wafer with its defects, what it sustains, what it takes in and gives out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.core.units import PS_PER_S, PS_PER_US
from waferstream.core.user_code import IMPORT_PATH
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec
from waferstream.machine.hardware.hosts import HOSTS, HostSpec
from waferstream.machine.hardware.sourced import Preset, Sourced, preset, sourced


class DefectSpec(Config):
    """Dead PEs and links of every wafer of the cluster: a random share, or those of a file.

    They come on top of the PEs that the published usable grid leaves out already.
    """

    pe_yield: float = sourced(
        1.0,
        "assumed",
        "share of PEs that work; redundancy makes the usable grid whole",
        ge=0.8,
        le=1,
    )
    link_yield: float = sourced(1.0, "assumed", "share of links that work", ge=0.8, le=1)
    seed: NonNegativeInt = sourced(0, "assumed", "any; one seed gives one wafer")
    map: Path | None = sourced(
        None, "assumed", "file of dead PEs and links (csnode.fabric.defects), not random ones"
    )

    @property
    def is_none(self) -> bool:
        """Whether all PEs and links work."""
        return self.map is None and self.pe_yield == self.link_yield == 1

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.map is not None and (self.pe_yield < 1 or self.link_yield < 1):
            raise ConfigError(
                "defects must come from a file or at random, not both",
                code="defects-of-two-origins",
                where="system.defects",
                value=f"map {self.map}, pe_yield {self.pe_yield}, link_yield {self.link_yield}",
                rule="one of the two",
                remedy="leave out the map or the yields in cluster.yaml",
            )
        return self


class WaferSpec(Config):
    """One CS system. It has no default of any product.

    Costs take ``fabric`` for whole: a cluster keeps only the part of it without ``defects``
    (csnode.fabric.region).
    """

    name: str
    cores: PositiveInt
    """Cores on the wafer."""
    clock_hz: PositiveInt
    flops_per_core_cycle: PositiveInt
    """fp16 operations of a core; multiply and add count as two."""
    fabric: FabricSpec
    defects: DefectSpec = Field(default_factory=DefectSpec)

    sram_bytes: Annotated[PositiveInt, Field(le=10**18)]
    """SRAM of the whole wafer."""
    io_bandwidth_bytes_per_s: PositiveInt
    """Bandwidth of the wafer in each direction."""
    kernel_efficiency: Annotated[PositiveFloat, Field(le=1)]
    """Cycles of the closed forms (``kernels``) over those taken, of all but attention."""
    attention_efficiency: Annotated[PositiveFloat, Field(le=1)]
    """Cycles of the closed forms over those taken, of attention."""
    segment_overhead_ps: NonNegativeInt
    """Time to start a segment."""
    software_speed: PositiveFloat
    """Speed of kernels, relative to a CS-2 with software since 2024."""
    kernel_costs: str | None = Field(default=None, pattern=IMPORT_PATH)
    """A class of your own by its import path (``my_module:MyCosts``, derived from KernelCosts of
    waferstream.machine.kernels.op_costs), whose cycles count instead of the closed forms."""
    programming_ps: NonNegativeInt
    """Time to load the program, once the initial weights have been sent."""
    hosts: HostSpec
    """The hosts that came with systems of this generation."""

    @model_validator(mode="after")
    def _grid_lies_on_the_wafer(self) -> Self:
        if self.fabric.num_pes > self.cores:
            raise ConfigError(
                f"a {self.name} has fewer cores than its grid has PEs",
                code="grid-larger-than-wafer",
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


_BOTH_SYSTEMS: Mapping[str, Any] = {
    "io_bandwidth_bytes_per_s": Sourced(
        150_000_000_000, "published", "12 x 100 GbE = 1.2 Tb/s in each direction; hc 2022"
    ),
    "kernel_efficiency": Sourced(
        0.549,
        "fitted",
        "T0001 T0003 T0009 T0011 T0017 T0019 T0028 T0034 T0062, together with the two below: "
        "cycles of the closed forms (waferstream.machine.kernels) over the cycles that these runs "
        "took",
    ),
    "attention_efficiency": Sourced(0.206, "fitted", "as kernel_efficiency"),
    "segment_overhead_ps": Sourced(
        1_140 * PS_PER_US,
        "fitted",
        "as kernel_efficiency; what a layer takes for each micro-batch however small, forward or "
        "backward, whatever the speed of the kernels",
    ),
}
"""Numbers published for a CS-2 and taken for a CS-3, or fitted to rows of both."""

_CS2: Preset[WaferSpec] = preset(
    WaferSpec,
    "A CS-2",
    name="CS-2",
    fabric=WSE2,
    **_BOTH_SYSTEMS,
    cores=Sourced(850_000, "published", "zhang; white paper"),
    clock_hz=Sourced(1_100_000_000, "published", "zhang, citing IEEE Micro 2023"),
    flops_per_core_cycle=Sourced(8, "published", "four fp16 multiply-adds; hc 2022"),
    sram_bytes=Sourced(
        850_000 * 48 * 1024, "derived", "48 KiB in each core; the white paper says 40 GB"
    ),
    software_speed=Sourced(1.0, "derived", "1 by definition: that of a CS-3 is relative to it"),
    programming_ps=Sourced(
        110 * PS_PER_S, "published", "logs from 85 to 136 s (T0088); loading the wafer's program"
    ),
    hosts=HOSTS["CS-2"],
)
_CS3: Preset[WaferSpec] = preset(
    WaferSpec,
    "A CS-3",
    name="CS-3",
    fabric=WSE3,
    **_BOTH_SYSTEMS,
    cores=Sourced(900_000, "published", "arXiv 2503.11698"),
    clock_hz=Sourced(
        1_085_000_000, "derived", "125 PFLOP/s with a sparsity factor of 8, over cores x 16"
    ),
    flops_per_core_cycle=Sourced(16, "published", "8-wide fp16; hc 2024"),
    sram_bytes=Sourced(
        900_000 * 48 * 1024, "derived", "48 KiB in each core; arXiv 2503.11698 says 44 GB"
    ),
    software_speed=Sourced(
        1.84,
        "assumed",
        "T0074 and N0001, too few rows to call it fitted; above 1 because the vector unit's rates "
        "measured with the SDK (WSE3) are a third of its width",
    ),
    programming_ps=Sourced(
        230 * PS_PER_S, "published", "logs from 200 to 245 s (T0089); loading the wafer's program"
    ),
    hosts=HOSTS["CS-3"],
)

PRESETS: Mapping[str, Preset[WaferSpec]] = {"CS2": _CS2, "CS3": _CS3}

CS2 = _CS2.spec
CS3 = _CS3.spec
SYSTEMS: Mapping[str, WaferSpec] = {system.name: system for system in (CS2, CS3)}
