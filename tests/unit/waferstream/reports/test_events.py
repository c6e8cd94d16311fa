"""Scalars for TensorBoard can be read back, also while a run goes on."""

from pathlib import Path

import pytest

from tests.support.disks import full_disk
from tests.support.event_files import events, scalars
from waferstream.reports.events import EventWriter


def test_scalars_are_in_the_event_file_once_it_is_closed(tmp_path: Path) -> None:
    """Name, value and step can be read back."""
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    writer.scalar("eval/loss", 3.5, 20)
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert scalars(path) == [
        ("train/loss", pytest.approx(2.5), 10),
        ("eval/loss", pytest.approx(3.5), 20),
    ]


def test_what_is_flushed_can_be_read_before_the_end(tmp_path: Path) -> None:
    """A curve can be looked at while the run goes on."""
    writer = EventWriter(tmp_path / "made" / "here")
    writer.scalar("train/loss", 2.5, 10)
    writer.flush()
    (path,) = tmp_path.rglob("events.out.tfevents.*")
    assert [event.step for event in events(path)] == [0, 10]
    writer.close()


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    """Told to the caller, not by a thread that nobody waits for."""
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    with full_disk(), pytest.raises(OSError, match=tmp_path.name):
        writer.flush()
    writer.close()
