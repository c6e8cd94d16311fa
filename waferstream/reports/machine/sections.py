"""Sections of a page about the emulated machine: attribution, stalls, wafer, tree, memory."""

from __future__ import annotations

from dataclasses import replace

from csnode.engine.spec import LayerRegion
from swarmx.topology import Tree, swarmx_nodes, topology_of
from waferstream.core.units import counted, format_bytes, format_ps
from waferstream.machine.attribution import CAUSES, OVERHEAD_NOTE, Attribution
from waferstream.machine.sram import LayerReport, SramReport, sram_report
from waferstream.reports.machine.drawings import (
    grid_drawing,
    percent,
    shares_drawing,
    sram_drawing,
    tree_drawing,
)
from waferstream.reports.machine.use import (
    LAYER_HEADER,
    NUMBER,
    LayerGroup,
    MachineUse,
    joint_path,
    layer_row,
)
from waferstream.reports.page import Block, Figures, Section, Sentence, Table


def attribution_section(causes: Attribution, steps: int) -> Section:
    """Return where the emulated time of some steps went."""
    shares = {cause: share for cause, share in causes.shares().items() if share}
    rows = [
        (cause, f"{share:.1%}", format_ps(round(share * causes.total_ps / steps)), CAUSES[cause])
        for cause, share in shares.items()
    ]
    blocks: list[Block] = [
        Figures([("Shares of the busiest systems' time", shares_drawing(shares))]),
        Table(("cause", "share", "of a step", "what it is"), rows, texts=("what it is",)),
    ]
    if shares.get("overhead", 0.0) > 0.5:
        blocks.append(Sentence(OVERHEAD_NOTE))
    return Section("attribution", "Where the time goes", blocks)


def machine_sections(use: MachineUse) -> list[Section]:
    """Return the sections about stalls, wafer, tree and memory."""
    report = sram_report(use.sram_plan)
    return [
        stall_section(use.layers),
        _wafer_section(use, report),
        _tree_section(use),
        _memory_section(use, report),
    ]


def stall_section(layers: tuple[LayerGroup, ...]) -> Section:
    """Return the no-stall condition of every layer, with remedies."""
    stalled = sum(group.count for group in layers if not group.check.holds)
    total = sum(group.count for group in layers)
    return Section(
        "stalls",
        "Does streaming stall the wafer?",
        [
            Sentence(f"{stalled} of {counted(total, 'segment')} stall.", is_note=False),
            Table(LAYER_HEADER, [layer_row(group) for group in layers], texts=("remedy",)),
            Sentence(
                "A segment stalls where its weights or gradients stream for longer than the wafer "
                "computes one micro-batch. Remedies are alternatives, each the smallest "
                "sufficient. Zeros neither stream nor compute; a share of zeros is one of all "
                "products, tried in steps of 5%."
            ),
        ],
    )


def _wafer_section(use: MachineUse, report: SramReport) -> Section:
    fabric = use.sram_plan.wafer.fabric
    alike: dict[LayerReport, list[str]] = {}
    for layer in report.layers:
        key = replace(layer, layer=NUMBER.sub("*", layer.layer))
        alike.setdefault(key, []).append(layer.layer)
    rows = [
        (
            joint_path(names),
            f"{len(names)}",
            format_bytes(layer.weight_bytes),
            format_bytes(layer.stash_bytes),
            format_bytes(layer.working_bytes),
            f"{layer.columns} x {layer.rows}" if layer.columns else "-",
            f"{layer.utilisation:.0%}" if layer.columns else "-",
        )
        for layer, names in alike.items()
    ]
    header = ("layers", "count", "weights streamed", "stash", "working set", "PEs", "even load")
    return Section(
        "wafer",
        "The wafer",
        [
            Figures(
                [
                    ("Activations on the grid", grid_drawing(report, fabric.columns, fabric.rows)),
                    ("SRAM over a micro-batch", sram_drawing(use.sram_plan, report)),
                ]
            ),
            Table(header, rows),
            Sentence(
                f"{report.wafer}. Micro-batch of {report.micro_batch_size:,}; "
                f"{report.largest_micro_batch:,} would fit with all layers recomputed. Even load: "
                "mean load of all PEs over that of the fullest one."
            ),
        ],
    )


def _tree_section(use: MachineUse) -> Section:
    spec, load = use.machine.swarmx, use.load
    topology = topology_of(spec, use.num_csx)
    rows = [
        ("down, weights", format_bytes(load.down_bytes), percent(load.down)),
        ("up, gradients", format_bytes(load.up_bytes), percent(load.up)),
    ]
    is_tree = isinstance(topology, Tree)
    shape = f"of fan-out {spec.fan_out}" if is_tree else f"of {spec.topology}"
    note = (
        f"Every link carries the same: each payload goes to all systems, each sum comes from all. "
        f"A link has {spec.link_bandwidth_bytes_per_s / 1e9:g} GB/s in each direction. "
        f"{counted(topology.num_switches, 'switch', 'switches')} {shape} for each "
        f"port, in {counted(swarmx_nodes(spec, use.num_csx), 'SwarmX node')}."
    )
    drawing: list[Block] = []
    if isinstance(topology, Tree):  # what another topology looks like is not known here
        drawing.append(Figures([("MemoryX to systems", tree_drawing(topology, load))]))
    return Section(
        "tree",
        "The tree and its links",
        [
            *drawing,
            Table(("direction", "bytes of a step", "of the link"), rows),
            Sentence(note),
        ],
    )


def _memory_section(use: MachineUse, report: SramReport) -> Section:
    tiers, spec = use.tiers, use.machine.memoryx
    kinds = (
        ("fp32 masters", tiers.masters),
        ("gradient sums", tiers.sums),
        ("optimizer state", tiers.state),
    )
    rows = [
        (
            name,
            format_bytes(kind.num_bytes - kind.flash_bytes),
            format_bytes(kind.flash_bytes),
        )
        for name, kind in kinds
    ]
    rows += [
        ("in all", format_bytes(tiers.dram_bytes), format_bytes(tiers.flash_bytes)),
        ("there is", format_bytes(spec.dram_bytes), format_bytes(spec.flash_bytes)),
    ]
    pieces = (
        ("code", report.code_bytes),
        ("stash", report.peak_stash_bytes),
        ("working set", report.peak_working_bytes),
        ("buffers of streams", report.peak_buffer_bytes),
        ("there is", report.sram_bytes),
    )
    wafer = [(name, format_bytes(piece)) for name, piece in pieces]
    return Section(
        "memory",
        "Memory",
        [
            Table(("MemoryX", "DRAM", "flash"), rows),
            Table(("a wafer at the peak of a micro-batch", "SRAM"), wafer),
        ],
    )


def region_section(regions: tuple[LayerRegion, ...]) -> Section:
    """Return the PEs that computed the kernels of each layer, and their cycles."""
    alike: dict[LayerRegion, list[str]] = {}
    for region in regions:
        key = replace(region, layer=NUMBER.sub("*", region.layer))
        alike.setdefault(key, []).append(region.layer)
    rows = [
        (
            joint_path(names),
            region.phase,
            ", ".join(region.engines),
            "-" if region.engines == ("torch",) else f"{region.rows:,} x {region.columns:,}",
            f"{region.cycles:,}",
            f"{region.kernel_cycles:,}" if region.counted_cycles else "-",
            f"{region.counted_cycles:,}" if region.counted_cycles else "-",
        )
        for region, names in alike.items()
    ]
    header = (
        "layers", "phase", "engine", "PEs (rows x columns)", "cycles, closed forms",
        "of simulated kernels", "counted",
    )  # fmt: skip
    return Section(
        "engines",
        "Engine and region of each layer",
        [
            Table(header, rows, texts=("engine",)),
            Sentence(
                "Cycles of a micro-batch on that region. Kernels of wafer-cycles are stated "
                "twice: by closed forms, and as the simulator of the fabric counts them. The "
                "emulated time of the run stays that of the whole wafer."
            ),
        ],
    )
