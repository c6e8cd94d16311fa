"""Power and price of nodes of GPUs, and what an hour of them takes.

A node draws 76 % of its rated power while it trains, whatever the model: so it was measured on
eight H100 (arXiv 2506.14551 and 2412.08602, Brookhaven; most 8.4 kW of 10.2). Ratings are those of
NVIDIA's guides to the DGX. Prices are those of a node over four years of 8,766 hours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat

from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.core.config import Config
from waferstream.machine.energy import Footprint, hour_of
from waferstream.machine.hardware import PowerSpec
from waferstream.machine.hardware.sourced import Preset, Sourced, preset


class NodePowerSpec(Config):
    """Power and price of a node of eight GPUs with its hosts."""

    node_kw: PositiveFloat
    """While it trains."""
    network_kw: NonNegativeFloat
    """Of a node's share of the switches, where there are several nodes."""
    node_hour_usd: NonNegativeFloat


_NETWORK = Sourced(
    0.65, "assumed", "three ports for each GPU in a tree of two levels; 64 ports draw 1.72 kW"
)

_H100 = preset(
    NodePowerSpec,
    "A DGX H100 in a cluster",
    node_kw=Sourced(7.75, "published", "arXiv 2506.14551: 76 % of 10.2 kW"),
    network_kw=_NETWORK,
    node_hour_usd=Sourced(
        9.27, "derived", "325,060 USD with InfiniBand, of 64 nodes; a public price list, Aug 2024"
    ),
)

PRESETS: Mapping[str, Preset[Any]] = {
    "A100": preset(
        NodePowerSpec,
        "A DGX A100 in a cluster",
        node_kw=Sourced(4.94, "derived", "76 % of 6.5 kW"),
        network_kw=_NETWORK,
        node_hour_usd=Sourced(5.68, "derived", "199,000 USD, the price at its launch in 2020"),
    ),
    "H100": _H100,
    "H200": preset(
        NodePowerSpec,
        "A DGX H200 in a cluster",
        variant_of=_H100,
        node_hour_usd=Sourced(
            10.41, "derived", "a node of H100 and 5,000 USD more for each GPU; street prices, 2026"
        ),
    ),
    "B200": preset(
        NodePowerSpec,
        "A DGX B200 in a cluster",
        variant_of=_H100,
        node_kw=Sourced(10.9, "derived", "76 % of 14.3 kW"),
        node_hour_usd=Sourced(
            11.55, "derived", "a node of H100 and 10,000 USD more for each GPU; street prices, 2026"
        ),
    ),
}
"""Power of a node by the first word of its GPU's name."""


def node_power(gpu: str) -> NodePowerSpec:
    """Return power and price of a node of the named GPUs: ``"H100"``, ``"A100-80GB"``."""
    spec: NodePowerSpec = PRESETS[re.split("[-,]", gpu, maxsplit=1)[0]].spec
    return spec


def gpu_hour(cluster: GpuClusterSpec, gpus: int, site: PowerSpec) -> Footprint:
    """Return what an hour of GPUs takes, of a node their share.

    Args:
        cluster: The kind of GPUs.
        gpus: Their number.
        site: Cooling, carbon dioxide and price of energy.
    """
    node, nodes = node_power(cluster.gpu.name), gpus / cluster.gpus_per_node
    network_kw = node.network_kw if nodes > 1 else 0.0
    kw = site.pue * nodes * (node.node_kw + network_kw)
    return hour_of(site, kw, nodes * node.node_hour_usd)
