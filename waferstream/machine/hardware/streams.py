"""MemoryX and SwarmX: weight servers and the tree that their streams pass.

The link bandwidth between MemoryX, SwarmX and the systems follows published numbers, without a
fit: no published run is limited by it.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.core.units import PS_PER_US
from waferstream.core.user_code import IMPORT_PATH
from waferstream.machine.hardware.sourced import sourced

TREE = "tree"
"""The topology of SwarmX."""

MOST_SERVERS = 1024
"""Weight servers of one cluster; each is a process of its own."""

MOST_BUCKETS = 4096
"""Buckets under way at a time: practically no limit, and timing models keep little for each."""


class MemoryXSpec(Config):
    """The weight servers. Bandwidths and capacity are totals, shared evenly among the servers.

    So a run with few server processes and one with many emulate nearly the same machine: not quite,
    because a parameter is on one server and gets only its share of the bandwidth. Other published
    sizes: 12 nodes of 1128 GiB at one site, 82 TB for 64 CS-2 (Condor Galaxy 1), 4 TB to 2.4 PB in
    all. The vendor counts 20 bytes per parameter (4 TB for 200 B) or 50 (36 TB for 720 B); masters,
    gradient sums and the state of Adam take 16.
    """

    weight_servers: int = Field(default=1, ge=1, le=MOST_SERVERS)
    """Processes that emulate MemoryX, unless the run states their number."""

    bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "published", "at least the 1.2 Tb/s of a CS-2, in each direction; glossary"
    )
    dram_bytes: PositiveInt = sourced(
        36_000_000_000_000, "published", "DDR5 option for 720 B parameters; vendor, CS-3"
    )
    memory_bandwidth_bytes_per_s: PositiveInt = sourced(
        2_400_000_000_000, "assumed", "12 nodes with eight channels of DDR4-3200, 200 GB/s each"
    )
    flash_bytes: NonNegativeInt = sourced(
        0, "published", "an option: 1.2 PB for 24 T parameters; vendor, CS-3"
    )
    flash_bandwidth_bytes_per_s: PositiveInt = sourced(
        600_000_000_000, "assumed", "12 nodes with eight drives of PCIe 4.0 x4, 6.25 GB/s each"
    )
    flops_per_s: PositiveInt = sourced(
        15_360_000_000_000, "assumed", "12 nodes x 32 cores x 2.5 GHz x 16 fp32 operations a cycle"
    )
    prefetch_buckets: PositiveInt = sourced(
        4,
        "assumed",
        "weight buckets of one server that may be in flight to, or held by, a system",
        le=MOST_BUCKETS,
    )
    drain_buckets: PositiveInt = sourced(
        4,
        "assumed",
        "gradient buckets of one server that a system may have made but not delivered",
        le=MOST_BUCKETS,
    )


class SwarmXSpec(Config):
    """The broadcast/reduce tree. Both directions run at once; adding keeps up with the link.

    A node carries as many broadcast-reduces as its ports allow: one 1:4 takes five of six, two 1:2
    take all. A system's link is several ports wide and each port has a tree of its own.
    """

    topology: str = Field(default=TREE, pattern=f"^{TREE}$|{IMPORT_PATH}")
    """``tree``, or a class of your own by its import path (``my_module:MyTopology``, derived from
    swarmx.topology.Topology), which takes its place in emulated time; roles form a tree."""

    fan_out: PositiveInt = sourced(4, "published", "one 1:4 broadcast-reduce; glossary", ge=2)
    node_ports: PositiveInt = sourced(
        6, "derived", "two 1:2 broadcast-reduces in a node have three ports each; glossary"
    )
    port_bandwidth_bytes_per_s: PositiveInt = sourced(
        12_500_000_000, "published", "100 Gb/s NICs; glossary"
    )
    link_bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "derived", "12 ports of a system, a 100 Gb/s SwarmX node each; glossary"
    )
    hop_latency_ps: NonNegativeInt = sourced(
        5 * PS_PER_US, "assumed", "per switch; T0221 states under 5 us between two wafers"
    )

    @model_validator(mode="after")
    def _ports_suffice(self) -> Self:
        if self.fan_out + 1 > self.node_ports:
            raise ConfigError(
                f"a SwarmX node needs {self.fan_out + 1} ports for a 1:{self.fan_out} "
                f"broadcast-reduce; it has {self.node_ports}",
                code="fan-out-exceeds-ports",
                where="swarmx.fan_out",
                value=self.fan_out,
                rule=f"fan_out + 1 is at most swarmx.node_ports, {self.node_ports}",
                remedy="lower swarmx.fan_out or raise swarmx.node_ports in cluster.yaml",
            )
        return self
