"""Draw the systems of an appliance over time: EASY back-fill beside jobs that breathe.

    python -m benchmarks.queue.picture --trace lublin_256.swf.gz --first 2000 --jobs 70 \\
        --systems 64 --groups 8 --out docs/queue.png

Both panels have the same jobs of a trace, with arrivals compressed to a load of 0.95. EASY knows
true run times (``benchmarks.queue.easy``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from benchmarks.queue.easy import easy_starts_s
from waferstream.core.errors import WaferStreamError
from waferstream.management.schedule.simulate import Piece, simulate
from waferstream.management.schedule.trace import TraceJob, read_trace
from waferstream.management.schedule.workload import at_load, uniform, workload
from waferstream.reports import style

_COLOURS = tuple(
    to_rgba(colour, opacity)
    for opacity in (1.0, 0.7, 0.45)
    for colour in (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.VERMILION)
)
_HOUR_S = 3600.0


def easy_pieces(trace: Sequence[TraceJob], systems: int, groups: int) -> list[list[Piece]]:
    """Return where each job runs under EASY back-fill: on the first systems that are free."""
    starts_s = easy_starts_s(trace, systems, groups)
    free_from_s = [0.0] * systems
    pieces: list[list[Piece]] = [[] for _ in trace]
    for number in sorted(range(len(trace)), key=starts_s.__getitem__):
        start_s, job = starts_s[number], trace[number]
        free = [place for place in range(systems) if free_from_s[place] <= start_s]
        for place in free[: job.systems]:
            free_from_s[place] = start_s + job.run_s
        names = tuple(f"system-{place}" for place in free[: job.systems])
        pieces[number].append(Piece(start_s, start_s + job.run_s, names))
    return pieces


def breathing_pieces(trace: Sequence[TraceJob], systems: int, groups: int) -> list[list[Piece]]:
    """Return where each job runs if it breathes."""
    return [run.pieces for run in simulate(uniform(systems, groups), workload(trace).jobs)]


def queue_picture(path: Path, trace: Sequence[TraceJob], systems: int, groups: int) -> None:
    """Draw both schedules, as PNG."""
    panels = (
        ("EASY back-fill: a job keeps its size", easy_pieces(trace, systems, groups)),
        ("Jobs that breathe", breathing_pieces(trace, systems, groups)),
    )
    ends_h = max(job[-1].ends_s for _, pieces in panels for job in pieces) / _HOUR_S
    title = f"The same {len(trace)} jobs on {systems} systems; a colour is a job"
    with style.picture(path, title, 12.0, 6.5) as figure:
        for axes, (name, pieces) in zip(figure.subplots(2, 1), panels, strict=True):
            _draw(axes, pieces, systems)
            axes.set_title(f"{name}; {_described(trace, pieces)}", color=style.FAINT_INK)
            axes.set_xlim(0.0, ends_h)
        axes.set_xlabel("hours")


def _draw(axes: Axes, pieces: Iterable[Sequence[Piece]], systems: int) -> None:
    """Draw a row for each system, and each job as blocks of adjacent rows."""
    for number, job in enumerate(pieces):
        for piece in job:
            span_h = (piece.starts_s / _HOUR_S, (piece.ends_s - piece.starts_s) / _HOUR_S)
            for low, count in _blocks(piece.systems):
                axes.broken_barh(
                    [span_h],
                    (low, count),
                    facecolor=_COLOURS[number % len(_COLOURS)],
                    edgecolor="white",
                    linewidth=0.4,
                )
    axes.grid(visible=False)
    axes.set_ylim(0, systems)
    axes.set_yticks([0, systems // 2, systems])
    axes.set_ylabel("systems")


def _blocks(names: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the number of adjacent systems."""
    places = sorted(int(name.removeprefix("system-")) for name in names)
    low = 0
    for index, place in enumerate(places):
        if index + 1 == len(places) or places[index + 1] != place + 1:
            yield places[low], index + 1 - low
            low = index + 1


def _described(trace: Sequence[TraceJob], pieces: Sequence[Sequence[Piece]]) -> str:
    """Return mean wait and turnaround in words."""
    pairs = list(zip(trace, pieces, strict=True))
    wait_h = fmean(job[0].starts_s - traced.submitted_s for traced, job in pairs) / _HOUR_S
    turnaround_h = fmean(job[-1].ends_s - traced.submitted_s for traced, job in pairs) / _HOUR_S
    return f"mean wait {wait_h:.1f} h, from submission to end {turnaround_h:.1f} h"


def main() -> int:
    """Draw the picture of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trace", type=Path, required=True, help="SWF or CSV, also compressed")
    parser.add_argument("--first", type=int, default=0, help="jobs of the trace that are left out")
    parser.add_argument("--jobs", type=int, default=60, help="jobs of the trace that are drawn")
    parser.add_argument("--systems", type=int, default=16)
    parser.add_argument("--groups", type=int, default=8, help="MemoryX groups")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    typed = parser.parse_args()
    try:
        trace = read_trace(typed.trace, typed.first + typed.jobs)[typed.first :]
        start_s = trace[0].submitted_s
        trace = [replace(job, submitted_s=job.submitted_s - start_s) for job in trace]
        trace = at_load(trace, typed.systems, typed.groups, load=0.95)
        queue_picture(typed.out, trace, typed.systems, typed.groups)
    except WaferStreamError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
