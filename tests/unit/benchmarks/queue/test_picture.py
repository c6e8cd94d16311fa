"""The picture of the queue: the same jobs under EASY back-fill, and breathing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.queue.picture import easy_pieces, queue_picture
from tests.support.reports.pictures import drawn, overlapping, words
from waferstream.management.schedule.trace import TraceJob

TRACE = [
    TraceJob(600.0 * number, 3600.0 * (1 + number % 4), 1 + number % 8, "ann")
    for number in range(12)
]


def test_no_two_jobs_of_easy_share_a_system() -> None:
    pieces = [piece for job in easy_pieces(TRACE, systems=8, groups=4) for piece in job]
    assert [len(piece.systems) for piece in pieces] == [job.systems for job in TRACE]
    for index, piece in enumerate(pieces):
        for other in pieces[:index]:
            apart = piece.ends_s <= other.starts_s or other.ends_s <= piece.starts_s
            assert apart or not set(piece.systems) & set(other.systems)


def test_both_panels_state_waits(tmp_path: Path) -> None:
    """No texts overlap."""
    with drawn() as figures:
        queue_picture(tmp_path / "queue.png", TRACE, systems=8, groups=4)
    text = " ".join(words(figures[0]))
    assert "EASY back-fill" in text
    assert text.count("mean wait") == 2
    assert overlapping(figures[0]) == []
