"""Hosts of a cluster: the nodes that compile, the user node, its files and its way to MemoryX.

Each generation of systems came with hosts and with software of its time, which public logs do not
separate: those of CS-2 clusters are of 2023 to 2025 (releases 2.0 to 2.4), those of CS-3 clusters
of 2025 (releases 2.5 and 2.6). The same job differs from run to run: 13.2 to 24.3 s for the same
initial weights (T0092, N0040), 464 to 644 s for the same checkpoint (T0098, N0042).
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import NonNegativeInt, PositiveInt

from waferstream.core.config import Config
from waferstream.core.units import PS_PER_MS
from waferstream.machine.hardware.sourced import Preset, Sourced, preset


class HostSpec(Config):
    """Hosts of a cluster. See ``waferstream.machine.start_up`` for the model."""

    compile_size_ps: NonNegativeInt
    """Time to try a micro-batch size, however small."""
    compile_element_ps: NonNegativeInt
    """Time to try it per element that a layer reads."""
    process_start_ps: NonNegativeInt
    """Time until a process of the user node sends its first byte."""
    tensor_ps: NonNegativeInt
    """Time to send a tensor, however small."""
    send_bandwidth_bytes_per_s: PositiveInt
    """Initial weights from the user node to MemoryX."""
    save_start_ps: NonNegativeInt
    """Time before the first byte of a checkpoint."""
    save_bandwidth_bytes_per_s: PositiveInt
    """Checkpoint from MemoryX to the file."""


_CS2: Preset[HostSpec] = preset(
    HostSpec,
    "Hosts of CS-2 clusters",
    compile_size_ps=Sourced(
        94_456 * PS_PER_MS, "fitted", "N0047 N0048 N0049 H0032 H0034 H0036, on both kinds of hosts"
    ),
    compile_element_ps=Sourced(1_318_679, "fitted", "as compile_size_ps"),
    process_start_ps=Sourced(
        2_300 * PS_PER_MS, "assumed", "it imports PyTorch first, 2.3 s of CPU time"
    ),
    tensor_ps=Sourced(
        19 * PS_PER_MS,
        "derived",
        "ESM-2 35M, which has few bytes: 6.5 s (H0007) less process_start_ps, for 200 tensors",
    ),
    send_bandwidth_bytes_per_s=Sourced(414_149_815, "fitted", "H0001 H0003 H0005 H0007 H0009"),
    save_start_ps=Sourced(
        14_600 * PS_PER_MS,
        "derived",
        "ESM-2 35M, which has few bytes: 16.3 s (H0020) less those of 0.4 GB",
    ),
    save_bandwidth_bytes_per_s=Sourced(225_728_548, "fitted", "H0016 H0018 H0020 H0022 H0024"),
)
_CS3: Preset[HostSpec] = preset(
    HostSpec,
    "Hosts of CS-3 clusters",
    variant_of=_CS2,
    tensor_ps=Sourced(0, "assumed", "small models take the time of a process alone (H0011)"),
    send_bandwidth_bytes_per_s=Sourced(1_829_134_529, "fitted", "T0092 H0011 H0013 H0015"),
    save_start_ps=Sourced(4_600 * PS_PER_MS, "assumed", "two processes start, one after the other"),
    save_bandwidth_bytes_per_s=Sourced(
        148_156_829, "fitted", "T0098 N0042 N0044 H0025 H0027 H0029 H0031"
    ),
)

PRESETS: Mapping[str, Preset[HostSpec]] = {"HostsOfCS2": _CS2, "HostsOfCS3": _CS3}

HOSTS: Mapping[str, HostSpec] = {"CS-2": _CS2.spec, "CS-3": _CS3.spec}
"""Hosts by the name of the systems that they came with."""
