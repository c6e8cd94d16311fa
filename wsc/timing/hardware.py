"""The emulated machine, every number with its source.

A number's *status* says how far to trust it:

    published   printed by the vendor or measured and printed by others
    derived     arithmetic on published numbers, given in its source
    fitted      chosen so that the model meets calibration rows (and no other rows)
    assumed     not published anywhere; a plausible value, to be varied when it decides a result

Sources in short: "zhang" is arXiv 2409.00287, "hc" the vendor's Hot Chips talks, "glossary" the
vendor's glossary, "T0028" and the like are rows of the reference table of training throughput.
Link bandwidth between MemoryX, SwarmX and the systems is bounded by what is published, not fitted:
no published run is limited by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from wsc.core.config import Config
from wsc.core.units import GIB, PS_PER_S, PS_PER_US

Status = Literal["published", "derived", "fitted", "assumed"]


def _sourced(
    value: float,
    status: Status,
    source: str,
    *,
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """A default together with how well it is known and where from."""
    return Field(
        default=value, description=source, json_schema_extra={"status": status}, ge=ge, le=le
    )


class WaferSpec(Config):
    """One CS system. The defaults are those of a CS-2; ``Cs3Spec`` holds those of a CS-3."""

    name: Literal["CS-2", "CS-3"] = "CS-2"

    cores: PositiveInt = _sourced(850_000, "published", "zhang; white paper")
    clock_hz: PositiveInt = _sourced(1_100_000_000, "published", "zhang, citing IEEE Micro 2023")
    flops_per_core_cycle: PositiveInt = _sourced(8, "published", "four fp16 multiply-adds; hc 2022")
    fabric_columns: PositiveInt = _sourced(
        750, "published", "usable grid; SDK examples, Jacquelin et al."
    )
    fabric_rows: PositiveInt = _sourced(
        994, "published", "usable grid; SDK examples, Jacquelin et al."
    )
    hop_cycles: PositiveInt = _sourced(1, "published", "Luczynski et al., HPDC'24")

    sram_bytes: PositiveInt = _sourced(40_000_000_000, "published", "white paper")
    sram_bandwidth_bytes_per_s: PositiveInt = _sourced(
        20_000_000_000_000_000, "published", "white paper"
    )
    io_bandwidth_bytes_per_s: PositiveInt = _sourced(
        150_000_000_000, "published", "12 x 100 GbE = 1.2 Tb/s in each direction; hc 2022"
    )

    matmul_utilisation: PositiveFloat = _sourced(
        0.251,
        "fitted",
        "geometric mean over T0001 T0003 T0009 T0011 T0017 T0019, micro-batches of 128 sequences, "
        "(6 N + 12 L H S) S operations per sequence, less the fixed time per layer",
        le=1,
    )
    segment_overhead_ps: NonNegativeInt = _sourced(
        2_038 * PS_PER_US,
        "fitted",
        "T0028 and T0034 (BERT-large, 24 layers): the line through both meets batch 0 at 97.8 ms, "
        "4.08 ms per layer; half of it forward, half backward",
    )

    @property
    def peak_flops_per_s(self) -> int:
        """Dense fp16 operations per second, multiply and add counted as two."""
        return self.cores * self.flops_per_core_cycle * self.clock_hz

    @property
    def kernel_overhead_ps(self) -> int:
        """The start of a kernel: one control wavelet across the fabric, corner to corner."""
        cycles = (self.fabric_columns + self.fabric_rows) * self.hop_cycles
        return cycles * PS_PER_S // self.clock_hz


class Cs3Spec(WaferSpec):
    """The numbers of a CS-3."""

    name: Literal["CS-2", "CS-3"] = "CS-3"

    cores: PositiveInt = _sourced(900_000, "published", "arXiv 2503.11698")
    clock_hz: PositiveInt = _sourced(
        1_085_000_000, "derived", "125 PFLOP/s with a sparsity factor of 8, over cores x 16"
    )
    flops_per_core_cycle: PositiveInt = _sourced(16, "published", "8-wide fp16; hc 2024")
    fabric_columns: PositiveInt = _sourced(762, "published", "usable grid; SDK examples")
    fabric_rows: PositiveInt = _sourced(1176, "published", "usable grid; SDK examples")
    hop_cycles: PositiveInt = _sourced(2, "published", "measured on a CS-3 (FABRICA); WSE-2 has 1")
    sram_bytes: PositiveInt = _sourced(44_000_000_000, "published", "arXiv 2503.11698")
    sram_bandwidth_bytes_per_s: PositiveInt = _sourced(
        21_000_000_000_000_000, "published", "arXiv 2503.11698"
    )
    matmul_utilisation: PositiveFloat = _sourced(
        0.251, "assumed", "as CS-2; the ratio of peaks, 2.1, lies in the published 1.7 to 2.3", le=1
    )
    segment_overhead_ps: NonNegativeInt = _sourced(2_038 * PS_PER_US, "assumed", "as CS-2")


class MemoryXSpec(Config):
    """The weight servers. Bandwidths and capacity are totals, shared evenly among the servers.

    So a run with few server processes and one with many emulate the same machine.
    """

    weight_servers: PositiveInt = 1
    """Processes that stand for MemoryX, when the run does not say how many."""

    bandwidth_bytes_per_s: PositiveInt = _sourced(
        150_000_000_000, "published", "at least the 1.2 Tb/s of a CS-2, in each direction; glossary"
    )
    dram_bytes: PositiveInt = _sourced(
        12 * 1128 * GIB, "published", "one node group of 12 nodes at the ALCF"
    )
    memory_bandwidth_bytes_per_s: PositiveInt = _sourced(
        2_400_000_000_000, "assumed", "12 nodes with eight channels of DDR4-3200, 200 GB/s each"
    )
    prefetch_shards: PositiveInt = _sourced(
        4, "assumed", "weight shards of one server that may be in flight to, or held by, a system"
    )
    drain_shards: PositiveInt = _sourced(
        4, "assumed", "gradient shards of one server that a system may have made but not delivered"
    )


class SwarmXSpec(Config):
    """The broadcast/reduce tree. Both directions run at once; adding keeps up with the link."""

    fan_out: PositiveInt = _sourced(4, "published", "one 1:4 broadcast-reduce; glossary", ge=2)
    link_bandwidth_bytes_per_s: PositiveInt = _sourced(
        150_000_000_000, "derived", "12 ports of a system, a 100 Gb/s SwarmX node each; glossary"
    )
    hop_latency_ps: NonNegativeInt = _sourced(
        5 * PS_PER_US, "assumed", "per switch; T0221 states under 5 us between two wafers"
    )


class InputSpec(Config):
    """The way of the training data, from input workers to each system."""

    bandwidth_bytes_per_s: PositiveInt = _sourced(
        12_500_000_000, "assumed", "one 100 Gb/s port of an activation server for each system"
    )
    prefetch_batches: PositiveInt = _sourced(
        2, "assumed", "micro-batches that a system may hold: one in use, one arriving"
    )


class MachineSpec(Config):
    """The machine of cluster.yaml.

    ``system`` is ``CS-2``, ``CS-3``, or a mapping that changes single numbers of the system that
    its ``name`` names. A CS-2 unless told otherwise, since its constants rest on the most rows.
    """

    system: WaferSpec = Field(default_factory=WaferSpec)
    memoryx: MemoryXSpec = Field(default_factory=MemoryXSpec)
    swarmx: SwarmXSpec = Field(default_factory=SwarmXSpec)
    input: InputSpec = Field(default_factory=InputSpec)

    @field_validator("system", mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping):
            is_cs3 = value.get("name") == "CS-3"
            return (Cs3Spec if is_cs3 else WaferSpec).model_validate(value)
        return value


CS2 = WaferSpec()
CS3 = Cs3Spec()


def describe(machine: MachineSpec) -> str:
    """A table of all numbers: name, value, status, source. A changed default has status "set"."""
    rows = list(_rows(machine))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {status:<{widths[2]}}  {source}"
        for name, value, status, source in rows
    )


def _rows(machine: MachineSpec) -> Iterator[tuple[str, str, str, str]]:
    for part in type(machine).model_fields:
        section: Config = getattr(machine, part)
        for key, info in type(section).model_fields.items():
            value = getattr(section, key)
            if isinstance(info.json_schema_extra, dict):
                status = str(info.json_schema_extra["status"])
                known = (status, info.description or "")
                changed = ("set", f"instead of {info.default}")
                yield (f"{part}.{key}", str(value), *(known if value == info.default else changed))
