"""What surrounds the wafers: MemoryX, SwarmX and the way of the training data.

Link bandwidth between MemoryX, SwarmX and the systems is bounded by what is published, not fitted:
no published run is limited by it.
"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from wsc.core.config import Config
from wsc.core.units import GIB, PS_PER_US
from wsc.timing.hardware.sourced import sourced


class MemoryXSpec(Config):
    """The weight servers. Bandwidths and capacity are totals, shared evenly among the servers.

    So a run with few server processes and one with many emulate the same machine.
    """

    weight_servers: PositiveInt = 1
    """Processes that stand for MemoryX, when the run does not say how many."""

    bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "published", "at least the 1.2 Tb/s of a CS-2, in each direction; glossary"
    )
    dram_bytes: PositiveInt = sourced(
        12 * 1128 * GIB, "published", "one node group of 12 nodes at the ALCF"
    )
    memory_bandwidth_bytes_per_s: PositiveInt = sourced(
        2_400_000_000_000, "assumed", "12 nodes with eight channels of DDR4-3200, 200 GB/s each"
    )
    prefetch_shards: PositiveInt = sourced(
        4, "assumed", "weight shards of one server that may be in flight to, or held by, a system"
    )
    drain_shards: PositiveInt = sourced(
        4, "assumed", "gradient shards of one server that a system may have made but not delivered"
    )


class SwarmXSpec(Config):
    """The broadcast/reduce tree. Both directions run at once; adding keeps up with the link."""

    fan_out: PositiveInt = sourced(4, "published", "one 1:4 broadcast-reduce; glossary", ge=2)
    link_bandwidth_bytes_per_s: PositiveInt = sourced(
        150_000_000_000, "derived", "12 ports of a system, a 100 Gb/s SwarmX node each; glossary"
    )
    hop_latency_ps: NonNegativeInt = sourced(
        5 * PS_PER_US, "assumed", "per switch; T0221 states under 5 us between two wafers"
    )


class InputSpec(Config):
    """The way of the training data, from input workers to each system."""

    bandwidth_bytes_per_s: PositiveInt = sourced(
        12_500_000_000, "assumed", "one 100 Gb/s port of an activation server for each system"
    )
    prefetch_batches: PositiveInt = sourced(
        2, "assumed", "micro-batches that a system may hold: one in use, one arriving"
    )
