"""A curve as files: JSON, pictures, and all of it as one HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from waferstream.core.config import dump_yaml
from waferstream.core.units import format_rate, format_short
from waferstream.host.files import replacing, write_json
from waferstream.reports.amounts import (
    PRICE_NOTE,
    energy_facts,
    format_duration,
    format_footprint,
)
from waferstream.reports.curve.result import CurveResult, GpuComparison, PointDetail
from waferstream.reports.curve.text import (
    curve_table,
    footnotes,
    gpu_tables,
    headline,
    own_footnotes,
    start_up_text,
    verdict,
)
from waferstream.reports.host import host_text, software
from waferstream.reports.intervals import interval_notes, interval_section
from waferstream.reports.kept_pictures import draw_once
from waferstream.reports.machine.sections import (
    attribution_section,
    machine_sections,
    stall_section,
)
from waferstream.reports.machine.use import MachineUse
from waferstream.reports.page import (
    Block,
    Facts,
    Listing,
    Page,
    Picture,
    Section,
    Sentence,
    Table,
    Verdict,
    render,
)

_PICTURES = "waferstream.reports.curve.picture"


def write_curve(
    folder: Path,
    name: str,
    result: CurveResult,
    use: MachineUse | None = None,
    command: str = "",
) -> Path:
    """Write a curve as ``name.json``, ``name.png`` and ``name.html``; return the page's path.

    Where GPU clusters are compared, also writes ``gpus.png``; elsewhere removes that of an earlier
    curve.

    Args:
        folder: An existing folder.
        name: Stem of the file names.
        result: The curve.
        use: What a step of the point in detail uses of the machine.
        command: The command line that made the curve.
    """
    write_json(folder / f"{name}.json", result)
    picture = folder / f"{name}.png"
    shown = _shown(result)
    draw_once(picture, f"{_PICTURES}:curve_picture", headline(result), shown)
    gpu_path, gpu_image = folder / "gpus.png", None
    gpu_path.unlink(missing_ok=True)
    if result.gpus is not None and result.gpus.curves:
        draw_once(gpu_path, f"{_PICTURES}:gpu_picture", headline(result), shown, result.gpus)
        gpu_image = gpu_path.read_bytes()
    target = folder / f"{name}.html"
    with replacing(target) as partial:
        page = curve_page(result, picture.read_bytes(), gpu_image, use, command)
        partial.write_text(render(page), encoding="utf-8")
    return target


def _shown(result: CurveResult) -> CurveResult:
    """Return a curve without what no picture shows: the commit, and seconds of the host."""
    info = result.simulation
    return replace(
        result,
        commit=None,
        simulation=None if info is None else replace(info, curve_s=0.0),
        others=tuple(map(_shown, result.others)),
    )


def curve_page(
    result: CurveResult,
    picture: bytes,
    gpu_picture: bytes | None = None,
    use: MachineUse | None = None,
    command: str = "",
) -> Page:
    """Return the page of a curve.

    Args:
        result: The curve.
        picture: PNG of the curve.
        gpu_picture: PNG of the comparison with GPU clusters.
        use: What a step of the point in detail uses of the machine.
        command: The command line that made the curve.
    """
    sections = [_weights_section(result)] if result.training is not None else []
    sections.append(_curve_section(result, picture))
    if result.gpus is not None:
        sections.append(_gpu_section(result.gpus, gpu_picture))
    detail = None if result.simulation is None else result.simulation.detail
    if detail is not None:
        sections += _detail_sections(result, detail, use)
    if result.zeros is not None:
        sections.append(result.zeros.section())
    sections.append(_cost_section(result))
    sections.append(interval_section(list(interval_notes(result.intervals))))
    sections.append(_origin_section(result, command))
    return Page(f"Scaling over {result.system} systems", headline(result), sections)


def _weights_section(result: CurveResult) -> Section:
    training = result.training
    assert training is not None
    digest = training.weights_sha256
    each = [f"{p.num_csx}: {p.run.weights_sha256}" for p in result.points if p.run is not None]
    evidence = each if digest is None else [digest]
    text = verdict(training, len(result.points))
    return Section("weights", "Weights", [Verdict(digest is not None, text, evidence)])


def _curve_section(result: CurveResult, picture: bytes) -> Section:
    description = (
        "Left: samples per second against the number of systems. Right: emulated step time by "
        "cause for each number of systems. The table below holds the numbers."
    )
    blocks: list[Block] = [Picture(picture, description), *_tables(result)]
    blocks += [Sentence(note) for note in footnotes(result)]
    for other in result.others:
        blocks += [Sentence(headline(other), is_note=False), *_tables(other)]
        blocks += [Sentence(note) for note in own_footnotes(other, result)]
    return Section("curve", "Rates and attribution", blocks)


def _tables(result: CurveResult) -> tuple[Table, Table]:
    """Return the rows as two tables, which fit a desk and paper: rates, and what causes them."""
    rows = curve_table(result)
    cut = rows[0].index("efficiency") + 1
    causes = [(row[0], *row[cut:]) for row in rows]
    return Table(rows[0][:cut], [row[:cut] for row in rows[1:]]), Table(causes[0], causes[1:])


def _gpu_section(gpus: GpuComparison, picture: bytes | None) -> Section:
    description = (
        "Samples per second of CS systems, emulated, and of GPU clusters, modelled, against their "
        "number."
    )
    blocks: list[Block] = [] if picture is None else [Picture(picture, description)]
    for title, (header, *rows) in gpu_tables(gpus).items():
        blocks += [Sentence(title, is_note=False), Table(header, rows)]
    return Section("gpus", "Beside GPU clusters", [*blocks, Sentence(gpus.note)])


def _detail_sections(
    result: CurveResult, detail: PointDetail, use: MachineUse | None
) -> list[Section]:
    """Return the sections about one point: attribution, machine, start-up."""
    point = result.detailed
    overview = {
        "Systems": f"{detail.num_csx:,} x {result.system}",
        "Batch": detail.effective_batch,
        "Wafer": detail.wafer,
        "Start-up": start_up_text(detail),
    }
    machine = [stall_section(detail.layers)] if use is None else machine_sections(use)
    return [
        Section("detail", f"On {detail.num_csx:,} x {result.system}", [Facts(overview)]),
        attribution_section(point.emulated.attribution_ps, 1),
        *machine,
    ]


def _cost_section(result: CurveResult) -> Section:
    """Return energy of a step, and time, energy and cost of the token budget."""
    facts: dict[str, str] = {}
    bill = None
    if result.simulation is not None:
        detail, point = result.simulation.detail, result.detailed
        bill = point.bill
        facts = {} if point.energy is None else energy_facts(point.energy, detail.start_up)
    if bill is None:
        text = "Time, energy and cost of a whole training: --simulate with --token_budget."
        known: list[Block] = [Facts(facts)] if facts else []
        return Section("cost", "Energy and cost", [*known, Sentence(text), Sentence(PRICE_NOTE)])
    facts["Training"] = (
        f"{format_short(bill.tokens)} tokens take {format_duration(bill.duration_s)}, "
        f"{format_rate(bill.system_hours)} system hours"
    )
    facts["It takes"] = format_footprint(bill.footprint)
    return Section("cost", "Energy and cost", [Facts(facts), Sentence(PRICE_NOTE)])


def _origin_section(result: CurveResult, command: str) -> Section:
    """Return the section of settings that the numbers depend on."""
    facts = {"Command": command} if command else {}
    facts["Micro-batch"] = f"{result.micro_batch}"
    facts["Software"] = f"WaferStream {result.version}"
    run = result.points[0].run
    if run is not None:
        facts["Software"] += software(run.measured.host)
        facts["Host"] = host_text(run.measured.host)
    facts["Commit"] = result.commit or "not in a git repository"
    blocks: list[Block] = [Facts(facts)]
    if result.configuration:
        blocks.append(Listing("The configuration", dump_yaml(dict(result.configuration))))
    return Section("reproduce", "How to reproduce it", blocks)
