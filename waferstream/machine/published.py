"""What was published of systems and clusters, and what the clock makes of it.

Marketing, papers and measurements differ; where two sources contradict one another, both are here,
and the clock takes the one that a paper or a measurement states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.machine.hardware.machine import MachineSpec
from waferstream.machine.hardware.named import ANDROMEDA, CG1, CG3, PRESETS
from waferstream.machine.hardware.named import WSE3 as WSE3_ANNOUNCED
from waferstream.machine.hardware.sourced import Status
from waferstream.machine.hardware.wafer import SYSTEMS

_DIRECTIONS = 2 * 4  # of the links of a PE to its neighbours
_SAME = 0.03
"""Relative difference of two figures that are the same, one of them rounded."""


@dataclass(frozen=True)
class Figure:
    """A published number of a system, or of all systems of a cluster together."""

    what: str
    value: float
    unit: str
    source: str
    note: str = ""
    status: Status = "published"


STENCIL = "arXiv 2204.03775, section V.C"
WHITE_PAPER = "vendor's white paper of the CS-2"
LESSON = "lessons and articles"
GLOSSARY = "vendor's glossary"
DOCS = "training-docs.cerebras.ai, release 2.10"

_ON_ANY = (
    Figure("area", 46_225, "mm2", WHITE_PAPER),
    Figure(
        "memory bandwidth",
        25,
        "PB/s",
        LESSON,
        "on the clock: 16 B read and 8 B written a cycle in each core, at most",
    ),
    Figure("I/O", 1.2, "Tb/s", "Hot Chips 2022; 12 x 100 GbE", "in each direction"),
)

_OF_SYSTEMS: Mapping[str, tuple[Figure, ...]] = {
    "CS-2": (
        Figure("cores", 850_000, "", f"{WHITE_PAPER}; arXiv 2409.00287"),
        Figure("usable grid", 745_500, "PEs", "arXiv 2204.03775", "750 x 994, what a kernel gets"),
        Figure("transistors", 2.6, "T", WHITE_PAPER),
        Figure("clock", 1.1, "GHz", "arXiv 2409.00287, citing IEEE Micro 2023"),
        Figure("clock", 0.85, "GHz", "programs of the SDK", "kernels are compared in cycles"),
        Figure("SRAM", 40, "GB", WHITE_PAPER, "850,000 x 48 KiB are 41.8 GB"),
        Figure("memory bandwidth", 20, "PB/s", WHITE_PAPER),
        Figure("fabric", 220, "Pb/s", WHITE_PAPER),
        Figure("fabric", 224, "Pb/s", "vendor's blog: 28 PB/s"),
        Figure("dense 16-bit", 7.5, "PFLOP/s", "arXiv 2409.00287", "cores x 8 a cycle x 1.1 GHz"),
        Figure(
            "sparse 16-bit",
            62.5,
            "PFLOP/s",
            f"1 EFLOP/s of 16; {ANDROMEDA}",
            "8.3 times the dense peak; no run comes near it",
            "derived",
        ),
        Figure("power, idle", 16.1, "kW", STENCIL, "measured"),
        Figure("power, busy", 22.8, "kW", STENCIL, "measured, mean of a stencil; 22.9 at most"),
        Figure("most systems", 192, "", WHITE_PAPER),
        Figure("MemoryX, least", 4, "TB", GLOSSARY, "200 B parameters: 20 bytes each"),
        Figure("MemoryX, most", 2400, "TB", GLOSSARY, "120 T parameters: 20 bytes each"),
    ),
    "CS-3": (
        Figure("cores", 900_000, "", f"arXiv 2503.11698; {WSE3_ANNOUNCED}"),
        Figure("cores", 1_020_000, "", f"{DOCS}: 20 % more than a CS-2", "a rounding up, or all"),
        Figure("usable grid", 896_112, "PEs", "FABRICA; SDK", "762 x 1176, what a kernel gets"),
        Figure("transistors", 4, "T", WSE3_ANNOUNCED),
        Figure("clock", 1.085, "GHz", "125 PFLOP/s over 8 and cores x 16", status="derived"),
        Figure("clock", 0.875, "GHz", "programs of the SDK", "kernels are compared in cycles"),
        Figure("SRAM", 44, "GB", "arXiv 2503.11698"),
        Figure("memory bandwidth", 21, "PB/s", WSE3_ANNOUNCED),
        Figure("fabric", 214, "Pb/s", WSE3_ANNOUNCED),
        Figure("I/O", 1.56, "Tb/s", f"{DOCS}: 30 % more than a CS-2", "no other source has it"),
        Figure("dense 16-bit", 15.6, "PFLOP/s", "an eighth of 125", "8-wide", "derived"),
        Figure(
            "sparse 16-bit",
            125,
            "PFLOP/s",
            WSE3_ANNOUNCED,
            "eight times the dense peak; no run comes near it",
        ),
        Figure("power, busy", 23, "kW", "vendor, as repeated in public", "as much as a CS-2"),
        Figure("most systems", 2048, "", WSE3_ANNOUNCED),
        Figure("MemoryX, least", 1.5, "TB", WSE3_ANNOUNCED),
        Figure("MemoryX, middle", 12, "TB", WSE3_ANNOUNCED),
        Figure("MemoryX, DDR5", 36, "TB", "vendor", "720 B parameters: 50 bytes each"),
        Figure("MemoryX, flash", 1200, "TB", WSE3_ANNOUNCED, "24 T parameters: 50 bytes each"),
        Figure(
            "MemoryX of a run",
            55,
            "TB",
            "Sandia, December 2024",
            "one trillion parameters: 55 bytes each, where masters and Adam take 16",
        ),
    ),
}

_OF_CLUSTERS: Mapping[str, tuple[Figure, ...]] = {
    "andromeda": (
        Figure("all cores", 13.5e6, "", ANDROMEDA, "16 x 850,000 are 13.6 million"),
        Figure("all dense 16-bit", 0.12, "EFLOP/s", ANDROMEDA),
        Figure("all sparse 16-bit", 1, "EFLOP/s", ANDROMEDA),
        Figure("cores of hosts", 18_176, "", ANDROMEDA, "AMD EPYC, third generation"),
        Figure("bandwidth between", 96.8, "Tb/s", ANDROMEDA, "6.05 a system, 5 times its I/O"),
        Figure("all power", 500, "kW", "enterpriseai.news, 14 November 2022", "with hosts"),
        Figure("price", 30, "M USD", "tomshardware.com, 14 November 2022"),
        Figure("price", 35, "M USD", "hackaday.com, 23 November 2022"),
    ),
    "condor-galaxy-1": (
        Figure("all cores", 54e6, "", CG1),
        Figure("all sparse 16-bit", 4, "EFLOP/s", CG1),
        Figure("cores of hosts", 72_704, "", CG1, "AMD EPYC, third generation"),
        Figure(
            "bandwidth between",
            388,
            "Tb/s",
            CG1,
            "6.06 a system, 5 times its I/O; some repeat it as terabytes",
        ),
        Figure("price", 100, "M USD", "eenewseurope.com, July 2023"),
    ),
    "condor-galaxy-2": (
        Figure("all sparse 16-bit", 4, "EFLOP/s", f"{CG1}: nine alike, 36 together"),
    ),
    "condor-galaxy-3": (
        Figure("all cores", 58e6, "", CG3, "64 x 900,000 are 57.6 million"),
        Figure("all sparse 16-bit", 8, "EFLOP/s", CG3),
    ),
}
"""Figures that no multiplication gives, or that its result can be held against."""

_OF_ALL = {
    "all cores": ("cores", 1.0, ""),
    "all dense 16-bit": ("dense 16-bit", 1e-3, "EFLOP/s"),
    "all sparse 16-bit": ("sparse 16-bit", 1e-3, "EFLOP/s"),
    "all power": ("power, busy", 1.0, "kW"),
}
"""What all systems have together: the figure of one system, the factor to the unit."""

_SIZES = (
    ("systems", "systems", "", 1.0),
    ("memoryx.dram_bytes", "MemoryX, DRAM", "TB", 1e-12),
    ("memoryx.flash_bytes", "MemoryX, all flash", "TB", 1e-12),
)
"""Sizes of a named machine by key: what they are called, their unit, the factor to it."""

_SRAM_BYTES_PER_CYCLE = 24
"""16 read and 8 written in each core (arXiv 2204.03775, section IV.A)."""

_ON_THE_CLOCK: Mapping[str, Callable[[MachineSpec], float | None]] = {
    "cores": lambda machine: machine.system.cores,
    "usable grid": lambda machine: machine.system.fabric.num_pes,
    "clock": lambda machine: machine.system.clock_hz / 1e9,
    "SRAM": lambda machine: machine.system.sram_bytes / 1e9,
    "memory bandwidth": lambda machine: _sram_bytes_per_s(machine) / 1e15,
    "fabric": lambda machine: _fabric_bits_per_s(machine) / 1e15,
    "I/O": lambda machine: 8 * machine.system.io_bandwidth_bytes_per_s / 1e12,
    "dense 16-bit": lambda machine: machine.system.peak_flops_per_s / 1e15,
    "power, idle": lambda machine: machine.power.of_system(machine.system.name).idle_kw,
    "power, busy": lambda machine: machine.power.of_system(machine.system.name).load_kw,
    "systems": lambda machine: machine.systems,
    "all cores": lambda machine: (machine.systems or 1) * machine.system.cores,
    "all dense 16-bit": lambda m: (m.systems or 1) * m.system.peak_flops_per_s / 1e18,
    "MemoryX, DRAM": lambda machine: machine.memoryx.dram_bytes / 1e12,
    "MemoryX, all flash": lambda machine: machine.memoryx.flash_bytes / 1e12,
}
"""What the clock has for a figure, in its unit. It has no sparse peak: zeros spare products."""


@dataclass(frozen=True)
class Comparison:
    """A figure, what the clock has for it, and what other sources say."""

    figure: Figure
    on_the_clock: float | None
    others: tuple[Figure, ...]
    """Of the same thing, where they differ by more than rounding."""


def published_names() -> tuple[str, ...]:
    """Return the names of all systems and clusters."""
    return (*SYSTEMS, *PRESETS)


def machine_named(name: str) -> MachineSpec:
    """Return the machine of a system's or a cluster's name.

    Raises:
        ConfigError: There is none.
    """
    if name in SYSTEMS:
        return MachineSpec.model_validate({"system": name})
    if name in PRESETS:
        return MachineSpec(name=name)
    raise ConfigError(
        "a machine must be one of which figures are known",
        code="unknown-machine",
        value=name,
        rule=" or ".join(published_names()),
        remedy=did_you_mean(name, published_names()),
    )


def comparisons(name: str) -> list[Comparison]:
    """Return what was published of a system or cluster and of its systems, beside the clock.

    Raises:
        ConfigError: Nothing is known of that name.
    """
    machine = machine_named(name)
    of_system = sorted((*_OF_SYSTEMS[machine.system.name], *_ON_ANY), key=lambda each: each.what)
    figures = (*_of_cluster(name, of_system), *of_system)
    return [
        Comparison(
            figure,
            _ON_THE_CLOCK[figure.what](machine) if figure.what in _ON_THE_CLOCK else None,
            tuple(other for other in figures if _contradict(figure, other)),
        )
        for figure in figures
    ]


def _of_cluster(name: str, of_system: Sequence[Figure]) -> Iterator[Figure]:
    """Yield the figures of a cluster: its sizes, what is known, and multiples of a system's."""
    if name not in PRESETS:
        return
    cluster, known = PRESETS[name], _OF_CLUSTERS.get(name, ())
    for key, what, unit, scale in _SIZES:
        if key in cluster.stated:
            value, status, source = cluster.stated[key]
            yield Figure(what, value * scale, unit, source, status=status)
    yield from known
    for what, (of_one, factor, unit) in _OF_ALL.items():
        one = next(figure for figure in of_system if figure.what == of_one)
        if what not in {figure.what for figure in known}:
            value = cluster.systems * factor * one.value
            yield Figure(what, value, unit, f"systems x {of_one}", status="derived")


def _contradict(one: Figure, other: Figure) -> bool:
    is_far = abs(one.value - other.value) > _SAME * max(one.value, other.value)
    return one.what == other.what and is_far


def _sram_bytes_per_s(machine: MachineSpec) -> float:
    """Return the most that the memory of all cores delivers and takes."""
    return machine.system.cores * _SRAM_BYTES_PER_CYCLE * machine.system.clock_hz


def _fabric_bits_per_s(machine: MachineSpec) -> float:
    """Return the bandwidth of all links between neighbours."""
    fabric = machine.system.fabric
    per_cycle = 8 * fabric.wavelet_bytes / fabric.cycles_per_wavelet
    return machine.system.cores * _DIRECTIONS * per_cycle * machine.system.clock_hz
