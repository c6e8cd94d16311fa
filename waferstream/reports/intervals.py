"""Intervals of emulated training throughput, as reports say them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from waferstream.core.units import counted, format_rate
from waferstream.machine.intervals import AnyInterval, Interval, Unknown
from waferstream.reports.page import Section, Sentence

INTERVAL_NOTE = (
    "50 % and 90 %: so many measured values lie in the range when published runs are predicted "
    "without those of their own model (docs/fidelity.md)."
)


def range_text(limits: tuple[float, float]) -> str:
    """Return a range of rates."""
    low, high = limits
    return f"{format_rate(low, 3)} to {format_rate(high, 3)}"


def evidence_of(interval: AnyInterval | None) -> str | None:
    """Return whether published runs are near a prediction; None for one without interval."""
    if interval is None:
        return None
    if isinstance(interval, Unknown):
        return "unknown"
    return "extrapolated" if interval.is_extrapolated else "published runs"


def interval_notes(intervals: Mapping[int, AnyInterval | None]) -> Iterator[str]:
    """Yield what intervals mean, how far they are from published runs, and why some are unknown.

    Args:
        intervals: Those of a curve by number of systems.
    """
    known = {count: one for count, one in intervals.items() if isinstance(one, Interval)}
    if known:
        yield INTERVAL_NOTE
        first, last = min(known), max(known)
        places = ", ".join(
            f"{known[count].place} on {counted(count, 'system')}"
            for count in dict.fromkeys((first, last))
        )
        yield f"Distance to the nearest calibrated run in shape, batch and machine: {places}."
    unknown = (str(one) for one in intervals.values() if isinstance(one, Unknown))
    yield from (f"Interval {text}." for text in dict.fromkeys(unknown))


def interval_section(notes: Sequence[str]) -> Section:
    """Return how far to trust the emulated times."""
    sentences = [Sentence(note, is_note=False) for note in notes]
    return Section("error", "How far to trust the emulated times", sentences)
