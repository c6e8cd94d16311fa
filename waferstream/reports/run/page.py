"""The report of one run of training or evaluation, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from waferstream.core.units import format_count, format_ps, format_rate, seconds
from waferstream.machine.intervals import SHARES, AnyInterval, Interval
from waferstream.machine.start_up import StartUp
from waferstream.reports.amounts import PRICE_NOTE, energy_facts, format_duration, format_energy
from waferstream.reports.drawing import Color, Point, Series, chart
from waferstream.reports.host import host_text, software
from waferstream.reports.intervals import interval_notes, interval_section, range_text
from waferstream.reports.machine.sections import (
    attribution_section,
    machine_sections,
    region_section,
)
from waferstream.reports.machine.use import MachineUse
from waferstream.reports.page import Block, Facts, Figures, Listing, Page, Section, Sentence, Table
from waferstream.reports.run.history import Curves
from waferstream.reports.run.summary import Emulated, RunSummary

REPORT_NAME = "report.html"


@dataclass(frozen=True)
class Origin:
    """What a run came from: all that is needed to repeat it."""

    name: str
    command: str
    commit: str | None
    params: str
    """The resolved configuration, as YAML."""
    cluster: str
    """The machine, as YAML."""


def run_page(
    summary: RunSummary,
    curves: Curves,
    origin: Origin,
    use: MachineUse | None,
) -> Page:
    """Return the page of a run.

    Args:
        summary: What the run has left in run_summary.json.
        curves: The losses of all runs of the model.
        origin: What the run came from.
        use: What a training step uses of the emulated machine; None where none was emulated.
    """
    sections = [_loss_section(summary, curves)]
    if summary.rates:
        sections.append(_rates_section(summary))
    if summary.emulated is not None:
        sections.append(attribution_section(summary.emulated.attribution_ps, _steps(summary)))
    if use is not None:
        sections += machine_sections(use)
    if summary.regions:
        sections.append(region_section(summary.regions))
    if summary.emulated is not None:
        sections += [
            _energy_section(summary, summary.emulated),
            interval_section(list(interval_notes({summary.num_csx: summary.interval}))),
        ]
    sections.append(_origin_section(summary, origin))
    machine = f"{summary.num_csx:,} x {summary.system}"
    parameters = format_count(summary.model.parameters)
    return Page(
        title=f"{summary.model.name} on {machine}",
        subtitle=f"Run {origin.name}: {summary.mode}, {summary.status}; {parameters} parameters, "
        f"batch of {summary.batch_size:,}, steps {summary.first_step:,} to {summary.last_step:,}",
        sections=sections,
        tiles=_tiles(summary),
    )


def _steps(summary: RunSummary) -> int:
    assert summary.emulated is not None
    return max(1, round(summary.emulated.total_ps / summary.emulated.step_ps))


def _tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    tiles = []
    if summary.train:
        step, loss = summary.train[-1]
        tiles.append(("Loss", f"{loss:.4f}", f"at step {step:,}"))
    if summary.eval:
        step, loss, metrics = summary.eval[-1]
        found = (f"{_short(name)} {value:.4g}" for name, value in metrics.items())
        tiles.append(("Evaluation", f"{loss:.4f}", ", ".join([f"at step {step:,}", *found])))
    if summary.emulated is not None:
        made = summary.emulated
        tiles.append(("Emulated", f"{format_rate(made.samples_per_s)} samples/s",
                      f"{format_ps(made.step_ps)} a step"))  # fmt: skip
    if summary.energy is not None:
        run = summary.energy.run
        tiles.append(("Emulated energy", format_energy(run.kwh), f"{format_rate(run.usd, 3)} USD"))
    if summary.measured is not None:
        tiles.append(("This host", f"{format_rate(summary.measured.samples_per_s)} samples/s",
                      "shared by all emulated systems"))  # fmt: skip
    return tiles


def _loss_section(summary: RunSummary, curves: Curves) -> Section:
    own = Curves(summary.train, tuple((step, loss) for step, loss, _ in summary.eval))
    drawings = [("This run", _loss_chart(own))]
    if curves != own:
        drawings.append(("All runs of the model", _loss_chart(curves)))
    blocks: list[Block] = [Figures(drawings)]
    if summary.train:
        (first, start), (last, end) = summary.train[0], summary.train[-1]
        blocks.append(
            Sentence(f"Loss {start:.4f} at step {first:,}, {end:.4f} at step {last:,}.", False)
        )
    if summary.eval:
        names = summary.eval[0][2]
        rows = [
            (f"{step:,}", f"{loss:.4f}", *(f"{metrics[name]:.4f}" for name in names))
            for step, loss, metrics in summary.eval
        ]
        blocks.append(Table(("evaluated at step", "loss", *map(_short, names)), rows))
    return Section("loss", "Loss", blocks)


def _short(metric: str) -> str:
    return metric.removeprefix("eval/")


def _loss_chart(curves: Curves) -> Markup:
    return chart(
        [
            Series("train", _points(curves.train), "blue"),
            Series("evaluation", _points(curves.evaluation), "vermilion", has_dots=True),
        ],
        "step",
        "Loss over steps",
    )


def _points(losses: Sequence[tuple[int, float]]) -> tuple[Point, ...]:
    return tuple((float(step), loss) for step, loss in losses)


def _rates_section(summary: RunSummary) -> Section:
    host = tuple((float(step), rate) for step, rate, _ in summary.rates)
    emulated = tuple((float(step), rate) for step, _, rate in summary.rates if rate)
    curves: tuple[tuple[str, tuple[Point, ...], Color], ...] = (
        ("The emulated machine", emulated, "green"),
        ("This host, on which all systems share the cores", host, "purple"),
    )
    drawings = [
        (title, chart([Series("samples/s", points, color)], "step", title, from_zero=True))
        for title, points, color in curves
        if points
    ]
    blocks: list[Block] = [Figures(drawings)]
    if summary.emulated is not None and summary.measured is not None:
        made, measured = summary.emulated, summary.measured
        blocks.append(
            Facts(
                {
                    "Emulated": f"{format_rate(made.samples_per_s)} samples/s, "
                    f"{format_ps(made.step_ps)} a step",
                    **_ranges(summary.interval, made.samples_per_s),
                    "Measured": f"{format_rate(measured.samples_per_s)} samples/s "
                    f"in {measured.seconds:.2f} s",
                    **({"Sequences": summary.packing.report()} if summary.packing else {}),
                    **_start_up(summary.start_up),
                    **({"Stragglers": _stragglers(summary)} if summary.stragglers else {}),
                    **({"Waits for links": _link_waits(summary)} if summary.link_waits else {}),
                }
            )
        )
    return Section("rates", "Rates", blocks)


def _ranges(interval: AnyInterval | None, rate: float) -> dict[str, str]:
    if not isinstance(interval, Interval):
        return {}
    return {
        f"{name} of machines": f"{range_text(interval.around(rate, share))} samples/s"
        for share, name in SHARES.items()
    }


def _start_up(start_up: StartUp | None) -> dict[str, str]:
    if start_up is None:
        return {}
    return {"Emulated start-up": format_duration(seconds(start_up.total_ps))}


def _stragglers(summary: RunSummary) -> str:
    return ", ".join(f"{name} in {steps:,} steps" for name, steps in summary.stragglers.items())


def _link_waits(summary: RunSummary) -> str:
    return ", ".join(f"{link} for {wait_s:.2f} s" for link, wait_s in summary.link_waits.items())


def _energy_section(summary: RunSummary, emulated: Emulated) -> Section:
    facts = {"Emulated time of these steps": format_ps(emulated.total_ps)}
    if summary.energy is not None:
        facts |= energy_facts(summary.energy, summary.start_up)
    advice = (
        f"{PRICE_NOTE} --simulate with --token_budget states time, energy and cost of a whole "
        "training."
    )
    return Section("cost", "Energy and cost", [Facts(facts), Sentence(advice)])


def _origin_section(summary: RunSummary, origin: Origin) -> Section:
    facts = {"Command": origin.command} if origin.command else {}
    if summary.weights_sha256 is not None:
        facts["Weights SHA-256"] = summary.weights_sha256
    if summary.checkpoint is not None:
        facts["Checkpoint"] = summary.checkpoint
    facts["Software"] = f"WaferStream {summary.version}"
    if summary.measured is not None:
        facts["Software"] += software(summary.measured.host)
        facts["Host"] = host_text(summary.measured.host)
    facts["Commit"] = origin.commit or "not in a git repository"
    blocks: list[Block] = [
        Facts(facts),
        Sentence(
            "The same command with these files and versions ends with the same weights, for every "
            "number of systems, tree, link and kind of cluster."
        ),
        Listing("The configuration, with all defaults (trainer_params.yaml)", origin.params),
        Listing("The machine (cluster.yaml)", origin.cluster),
    ]
    return Section("reproduce", "How to reproduce it", blocks)
