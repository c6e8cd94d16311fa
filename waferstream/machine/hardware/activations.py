"""Activation servers: hosts that hold activations for which the SRAM of a system has no room.

The vendor's jobs have three kinds of hosts: weight servers, the broadcast tree, and activation
servers (ACT in the logs of jobs). A system shares its link between weights and activations.
"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from waferstream.core.config import Config
from waferstream.machine.hardware.sourced import sourced

MOST_SERVERS = 1024
"""Activation servers of one system."""


class ActivationSpec(Config):
    """The activation servers of each system; none with ``servers: 0``."""

    servers: NonNegativeInt = sourced(
        12,
        "published",
        "the fewest ACT pods in public logs of jobs on one system, which have 12 to 59",
        le=MOST_SERVERS,
    )
    link_bandwidth_bytes_per_s: PositiveInt = sourced(
        12_500_000_000, "published", "100 Gb/s per host of the cluster, each way; glossary"
    )
    memory_bytes: PositiveInt = sourced(
        128 << 30, "assumed", "per server: eight modules of 16 GiB; not published"
    )

    @property
    def bandwidth_bytes_per_s(self) -> int:
        """Bandwidth of all servers of a system together, each way."""
        return self.servers * self.link_bandwidth_bytes_per_s

    @property
    def total_bytes(self) -> int:
        """Memory of all servers of a system together."""
        return self.servers * self.memory_bytes
